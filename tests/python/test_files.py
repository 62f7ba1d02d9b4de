"""Whatever happens while something is saved, the file is the old one or the new one."""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pulsora as pl
from conftest import CONFIGS, make_tile, run
from pulsora._internal.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable


def save_for_ever(folder: Path, begun: Callable[[], object]) -> None:
    tile = pl.Tile(120, 150, pl.SingleConfig(), threads=1)
    for number in itertools.count():
        tile.visible = np.full((120, 150), 0.001 * (number % 100), np.float32)
        tile.save(folder / "tile.safetensors")
        begun()


def check_tile(folder: Path) -> None:
    """Loading verifies the checksum."""
    assert pl.Tile.load(folder / "tile.safetensors", threads=1).d_size == 120


def kill(kills: int, folder: Path) -> None:
    run(
        *(sys.executable, Path(__file__).with_name("kills.py"), Path(__file__).stem),
        *("save_for_ever", "check_tile", folder, str(kills)),
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    path = folder / "tile.safetensors"
    make_tile(CONFIGS["single"]()).save(path)
    assert path in folder.iterdir()


SAVER = (
    "import sys, pathlib, test_files; "
    "test_files.save_for_ever(pathlib.Path(sys.argv[1]), lambda: 0)"
)


def test_a_killed_save_damages_nothing(tmp_path: Path) -> None:
    kill(20, tmp_path)


@pytest.mark.nightly
def test_three_hundred_killed_saves_damage_nothing(tmp_path: Path) -> None:
    kill(300, tmp_path)


def test_threads_and_processes_save_to_one_path(tmp_path: Path) -> None:
    path = tmp_path / "tile.safetensors"
    tiles = [pl.Tile(60, 70, pl.SingleConfig(), seed=seed, threads=1) for seed in range(3)]
    tiles[0].save(path)
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", SAVER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    failures: list[Exception] = []

    def save(tile: pl.Tile) -> None:
        try:
            for _ in range(30):
                tile.save(path)
        except Exception as error:  # noqa: BLE001 - any is a failure
            failures.append(error)

    threads = [threading.Thread(target=save, args=(tile,)) for tile in tiles]
    for thread in threads:
        thread.start()
    loads = 0
    while any(thread.is_alive() for thread in threads):
        assert pl.Tile.load(path, threads=1).d_size in {60, 120}
        loads += 1
    process.kill()
    process.wait()
    assert not failures
    assert loads > 3
    tiles[0].save(path)
    assert list(tmp_path.iterdir()) == [path]


def test_modes_links_and_long_names(tmp_path: Path) -> None:
    tile = make_tile(CONFIGS["ideal"]())
    path = tmp_path / "tile"
    path.touch(mode=0o600)
    tile.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    link = tmp_path / "link"
    link.symlink_to("tile")
    tile.update(np.ones(10, np.float32), np.ones(6, np.float32), 0.1)
    tile.save(link)
    assert link.is_symlink()
    assert pl.Tile.load(path).counters == tile.counters
    longest = tmp_path / ("x" * 255)
    tile.save(longest)
    assert pl.Tile.load(longest).counters == tile.counters
    with pytest.raises(OSError, match="too long") as caught:
        tile.save(tmp_path / ("x" * 256))
    assert caught.value.filename == str(tmp_path / ("x" * 256))


def test_a_link_that_was_planted_is_not_followed(tmp_path: Path) -> None:
    """Names of temporary files cannot be guessed, and an existing link is not written to."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in (f".tile.{os.getpid()}.part", ".tile.part", "tile.part"):
        (folder / name).symlink_to(victim)
    make_tile(CONFIGS["ideal"]()).save(folder / "tile")
    assert victim.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "tile"
    path.write_text("mine")
    path.chmod(0o400)
    with pytest.raises(PermissionError):
        replace_file(path, b"new")
    assert path.read_text() == "mine"


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    code = """
        import resource, signal, sys
        from pulsora._internal.files import replace_file

        replace_file(sys.argv[1], b"old")
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            replace_file(sys.argv[1], bytes(5000))
        except OSError as error:
            print(error)
    """
    path = tmp_path / "file"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", textwrap.dedent(code), path],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "File too large" in done.stdout
    assert str(path) in done.stdout
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
