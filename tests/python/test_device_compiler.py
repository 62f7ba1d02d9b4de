"""The compiler of device models from source: what it may read and use, and what ends it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pulsora as pl
from device_workshop import EXAMPLE, Workshop, finished

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")

TEXT = EXAMPLE.read_text()

# A compiler that never ends, with a process of its own; it writes the numbers of both.
ENDLESS = """#!/bin/sh
case "$*" in *--version*) exec c++ --version;; esac
sleep 1000 &
echo "$$ $!" > "$PULSORA_TEST_LOG.part"
mv "$PULSORA_TEST_LOG.part" "$PULSORA_TEST_LOG"
wait
"""

WAITING = """
import signal, sys
import pulsora as pl
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job
try:
    pl.devices.from_source(sys.argv[1])
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    (tmp_path / "tmp").mkdir()
    return Workshop(tmp_path)


@pytest.fixture
def endless(workshop: Workshop) -> Workshop:
    workshop.compiler.write_text(ENDLESS)
    return workshop


def _until(happened: Callable[[], bool]) -> None:
    latest = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < latest
        time.sleep(0.01)


def _runs(process: int) -> bool:
    """Whether a process exists and is no zombie, whose parent has yet to ask for its end."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _compilers(workshop: Workshop) -> list[int]:
    """The processes of the endless compiler, once it has started."""
    _until(workshop.log.exists)
    return [int(number) for number in workshop.log.read_text().split()]


def _file(workshop: Workshop, text: str) -> Path:
    path = workshop.log.parent / "my_step.h"
    path.write_text(text)
    return path


@pytest.mark.parametrize("how", ["absolute", "relative", "as a system header", "by a flag of CXX"])
def test_an_include_of_another_file_is_refused(workshop: Workshop, how: str) -> None:
    other = workshop.log.parent / "params.h"
    other.write_text("constexpr float kStep = 0.001f;\n")
    line, changes = f'#include "{other}"\n', {"TMPDIR": str(workshop.log.parent / "tmp")}
    if how == "relative":
        line = '#include "../../params.h"\n'
    elif how == "as a system header":
        line = "#pragma GCC system_header\n" + line
    elif how == "by a flag of CXX":
        line = "#include <params.h>\n"
        changes["CXX"] = f"{workshop.compiler} -I{other.parent}"
    report = workshop.run(_file(workshop, line + TEXT), **changes)
    assert report["error"].startswith("CompileError: the device model 'QuadraticStep' includes ")
    assert "params.h, which is neither a header of Pulsora" in report["error"]
    assert "paste its text into the source" in report["error"]
    assert not list(workshop.cache.glob("*.plugin"))


def test_headers_of_the_system_may_be_named_by_their_paths(workshop: Workshop) -> None:
    header = Path("/usr/include/math.h")
    if not header.exists():
        pytest.skip("the system's headers are elsewhere")
    report = workshop.run(_file(workshop, f'#include "{header}"\n#include <vector>\n' + TEXT))
    assert (report["error"], report["compiled"]) == ("", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("// kName" + " " * 50000 + "\n", "has no `static constexpr"),
        ("// kName" * 50000 + "\n", "has no `static constexpr"),
        ('kName = "' + "A" * 1000000 + '"\n', r"name is 'A{100}\[\.\.\.\]'"),
        ('kName = "' + "A" * 1000000 + "\n", "has no `static constexpr"),
        ('kName = "' + "A" * 100000, "has no `static constexpr"),
        ('kName = "' * 50001 + "\n", "name is 'kName = '"),
        ('kName\n=\t"Some"; kName="Other"\n', "has the names 'Other', 'Some'"),
    ],
)
def test_names_are_found_in_texts_of_any_length(text: str, message: str) -> None:
    with pytest.raises(pl.ConfigError, match=message) as refused:
        pl.devices.from_source(text)
    assert len(str(refused.value)) < 1000


def test_an_endless_file_meets_the_limit_of_memory(workshop: Workshop) -> None:
    source = _file(workshop, '#include "/dev/zero"\n' + TEXT)
    error = workshop.run(source, PULSORA_COMPILE_GIGABYTES="0.5")["error"]
    assert error.startswith("CompileError: ")
    assert "0.5 gigabytes of memory, the limit that PULSORA_COMPILE_GIGABYTES sets" in error


def test_an_endless_compiler_meets_the_limit_of_time(endless: Workshop) -> None:
    error = endless.run(EXAMPLE, PULSORA_COMPILE_SECONDS="1.5")["error"]
    assert error.startswith("CompileError: ")
    assert "ended after 1.5 seconds, the limit that PULSORA_COMPILE_SECONDS sets" in error
    _until(lambda: not any(map(_runs, _compilers(endless))))


@pytest.mark.parametrize("name", ["PULSORA_COMPILE_SECONDS", "PULSORA_COMPILE_GIGABYTES"])
@pytest.mark.parametrize("value", ["0", "-1", "1e9", "nan", "inf", "much", "1 2", "2x"])
def test_bad_limits_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    monkeypatch.setenv("PULSORA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(name, value)
    with pytest.raises(pl.ConfigError, match=f"{name} is '{value}'; set it to a number from"):
        pl.devices.from_source(EXAMPLE)


def test_an_interrupt_ends_the_compiler(endless: Workshop) -> None:
    folder = endless.log.parent / "tmp"
    child = endless.start(EXAMPLE, WAITING, TMPDIR=str(folder))
    compilers = _compilers(endless)
    assert all(map(_runs, compilers))
    assert [path.name[:16] for path in folder.iterdir()] == ["pulsora-compile-"]
    os.kill(child.pid, signal.SIGINT)  # the process alone, as notebooks do
    assert child.communicate(timeout=60)[0] == "interrupted\n"
    assert child.returncode == 0
    _until(lambda: not any(map(_runs, compilers)))
    assert not list(folder.iterdir())


def test_an_interrupt_ends_a_wait_for_another_process(endless: Workshop) -> None:
    compiling = endless.start(EXAMPLE, WAITING)
    compilers = _compilers(endless)
    waiting = endless.start(EXAMPLE, "print('started', flush=True)\n" + WAITING)
    assert waiting.stdout
    assert waiting.stdout.readline() == "started\n"
    locks = list(endless.cache.glob("*.lock"))
    assert len(locks) == 1
    handles = Path(f"/proc/{waiting.pid}/fd")

    def waits() -> bool:
        return any(link.exists() and link.samefile(locks[0]) for link in handles.iterdir())

    _until(waits)
    for child in (waiting, compiling):
        os.kill(child.pid, signal.SIGINT)
        assert child.communicate(timeout=60)[0] == "interrupted\n"
    _until(lambda: not any(map(_runs, compilers)))


def test_folders_of_killed_processes_are_removed_a_day_later(endless: Workshop) -> None:
    folder = endless.log.parent / "tmp"
    child = endless.start(EXAMPLE, WAITING, TMPDIR=str(folder))
    compilers = _compilers(endless)
    child.kill()
    child.communicate()
    os.killpg(compilers[0], signal.SIGKILL)
    (left,) = folder.iterdir()
    assert left.name.startswith("pulsora-compile-")
    assert (left / "rooms").exists()
    recent, foreign = folder / "pulsora-compile-recent", folder / "somebody-else"
    for path, days in ((left, 1.1), (foreign, 1.1), (recent, 0.9)):
        path.mkdir(exist_ok=True)
        then = time.time() - days * 86400
        os.utime(path, (then, then))
    endless.compiler.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) exec c++ --version;; esac\nexit 1\n'
    )
    error = finished(endless.start(EXAMPLE, TMPDIR=str(folder)))["error"]
    assert error.startswith("CompileError: ")
    assert sorted(path.name for path in folder.iterdir()) == [recent.name, foreign.name]


SAVED = """
import json, pickle, sys
from pathlib import Path
import pulsora as pl
if len(sys.argv) > 2:
    pl.devices.from_source(sys.argv[2])
told = []
for read in (lambda: pl.devices.load(Path(sys.argv[1]) / "device.toml"),
             lambda: pl.devices.load(Path(sys.argv[1]) / "device.json"),
             lambda: pickle.loads((Path(sys.argv[1]) / "config").read_bytes()).device):
    try:
        told.append(repr(read()))
    except pl.ConfigError as error:
        told.append(str(error))
print(json.dumps(told))
"""


def test_saved_devices_and_pickles_name_the_source(workshop: Workshop) -> None:
    folder = workshop.log.parent
    write = """
import pickle, sys
from pathlib import Path
import pulsora as pl
device = pl.devices.from_source(sys.argv[1])(dw_min=0.25)
for name in ("device.toml", "device.json"):
    pl.devices.save(device, Path(sys.argv[2]) / name)
(Path(sys.argv[2]) / "config").write_bytes(pickle.dumps(pl.SingleConfig(device=device)))
print(device.source_sha256)
"""

    def child(program: str, *arguments: str | Path) -> str:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", program, *map(str, arguments)],
            env=workshop.environment(), stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    digest = child(write, EXAMPLE, folder)
    assert f'source_sha256 = "{digest}"' in (folder / "device.toml").read_text()
    assert json.loads((folder / "device.json").read_text())["source_sha256"] == digest
    assert TEXT not in (folder / "device.json").read_text()

    for told in json.loads(child(SAVED, folder)):
        assert f"'QuadraticStep' from the source with SHA-256 {digest}" in told
        assert "no model of that name is known" in told
        assert "call pulsora.devices.from_source() on that source first" in told
    same = child(SAVED, folder, EXAMPLE)
    assert json.loads(same) == ["QuadraticStep(dw_min=0.25)"] * 3
    for told in json.loads(child(SAVED, folder, _file(workshop, TEXT + "// other\n"))):
        assert "the model of that name is from the source with SHA-256 " in told
        assert "in a new process" in told
    (folder / "device.json").write_text('{"model": "SoftBounds", "source_sha256": "00"}')
    with pytest.raises(pl.ConfigError, match="the model of that name is built in"):
        pl.devices.load(folder / "device.json")
    (folder / "device.json").write_text('{"model": "QuadraticStep2"}')
    with pytest.raises(pl.ConfigError, match=r"known after pulsora\.devices\.from_source"):
        pl.devices.load(folder / "device.json")
