"""Files of a training run: checkpoint.pt and metrics.json."""

from __future__ import annotations

import json
import os
import pickle
import random
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from conftest import run
from pulsora.training.data import Dataset
from pulsora.training.experiment import Experiment

torch = pytest.importorskip("torch")

from pulsora.training import run as runs  # noqa: E402 - needs torch
from pulsora.training.run import Run  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS: dict[str, Any] = {"hidden": (4,), "batch": 8, "rank": 2, "epochs": 1}


def data() -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 6)).astype(np.float32)
    y = rng.integers(0, 3, size=32)
    return Dataset("random", x, y, x, y, 3)


def make(out: Path | None, **options: Any) -> Run:
    settings = {**SETTINGS, **{k: options.pop(k) for k in list(options) if k in SETTINGS}}
    return Run(Experiment(**settings), out, threads=1, data=data(), **options)


def epochs_in(folder: Path) -> list[dict[str, float]]:
    epochs: list[dict[str, float]] = json.loads((folder / "metrics.json").read_text())["epochs"]
    return epochs


def test_a_run_is_not_overwritten_unasked(tmp_path: Path) -> None:
    make(tmp_path).train()
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(ValueError, match=rf"out = {tmp_path} .*--resume.*--overwrite"):
        make(tmp_path)
    with pytest.raises(ValueError, match="resume and overwrite"):
        make(tmp_path, resume=True, overwrite=True)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    make(tmp_path, overwrite=True, epochs=2).train()
    assert len(epochs_in(tmp_path)) == 2


@pytest.mark.parametrize("left", ["", "{", None])
def test_resuming_repairs_the_metrics(left: str | None, tmp_path: Path) -> None:
    history = make(tmp_path, epochs=2).train()
    metrics = tmp_path / "metrics.json"
    if left is None:
        metrics.unlink()
    else:
        metrics.write_text(left)
    make(tmp_path, epochs=2, resume=True)
    assert epochs_in(tmp_path) == history


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = make(tmp_path, epochs=2)
    written = []

    def full(path: Path, content: bytes) -> None:
        written.append(path.name)
        if len(written) > 3:
            raise OSError(28, "No space left on device", str(path))
        runs_replace(path, content)

    runs_replace = runs.replace_file
    with monkeypatch.context() as patch:
        patch.setattr(runs, "replace_file", full)
        with pytest.raises(OSError, match="No space"):
            trained.train()
    # The checkpoint comes first.
    assert written == ["checkpoint.pt", "metrics.json", "records.jsonl", "checkpoint.pt"]
    assert len(epochs_in(tmp_path)) == 1
    assert len(make(tmp_path, resume=True).history) == 1


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError, match="checkpoint") as caught:
        make(folder, resume=True)
    return str(caught.value)


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a checkpoint executed code",))


def other_content(path: Path) -> None:
    torch.save({"model": {}}, path)


def wrong_model(path: Path) -> None:
    saved = torch.load(path, weights_only=True)
    saved["model"].popitem()
    torch.save(saved, path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[: 10**3]),
        lambda path: path.write_text("{}"),
        lambda path: path.write_bytes(pickle.dumps(Harmful())),
        lambda path: torch.save(Harmful(), path),
        lambda path: torch.save([1, 2], path),
        other_content,
        wrong_model,
    ],
)
def test_a_damaged_checkpoint_is_one_clear_line(
    damage: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    make(tmp_path).train()
    path = tmp_path / "checkpoint.pt"
    damage(path)
    text = refusal(tmp_path)
    assert text.startswith(f"resume: {path} ")
    assert "\n" not in text


@pytest.mark.parametrize("part", ["directory", pytest.param("all", marks=pytest.mark.nightly)])
def test_every_changed_byte_of_a_checkpoint_is_found_or_changes_nothing(
    part: str, tmp_path: Path
) -> None:
    make(tmp_path).train()
    path = tmp_path / "checkpoint.pt"
    content = path.read_bytes()
    whole = runs.checkpoint_of("checkpoint", path, "")
    rng = random.Random(0)  # noqa: S311
    found = 0
    start = (
        zipfile.ZipFile(path).start_dir  # type: ignore[attr-defined]
        if part == "directory"
        else 0
    )
    for at in range(start, len(content)):
        mutant = bytearray(content)
        mutant[at] ^= rng.randint(1, 255)
        path.write_bytes(mutant)
        try:
            read = runs.checkpoint_of("checkpoint", path, "")
        except ValueError:
            found += 1
        else:
            assert same(read, whole), at
    assert found > (len(content) - start) // 3


def same(first: Any, second: Any) -> bool:  # noqa: ANN401
    if isinstance(first, torch.Tensor):
        return (first.dtype, first.shape) == (second.dtype, second.shape) and (
            first.numpy().tobytes() == second.numpy().tobytes()
        )
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(v, second[k]) for k, v in first.items())
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def train_for_ever(folder: Path, begun: Callable[[], object]) -> None:
    torch.set_num_threads(1)
    resumes = (folder / "checkpoint.pt").exists()
    make(folder, epochs=10**6, resume=resumes).train(on_epoch=lambda _: begun())


def check_run(folder: Path) -> None:
    last = len(epochs_in(folder))  # it can be read at any moment
    history = make(folder, resume=True, epochs=10**6).history
    assert len(history) - last in {0, 1}
    assert epochs_in(folder) == history
    assert [epoch["epoch"] for epoch in history] == list(range(1, len(history) + 1))


def kill(kills: int, folder: Path) -> None:
    run(
        *(sys.executable, Path(__file__).with_name("kills.py"), Path(__file__).stem),
        *("train_for_ever", "check_run", folder, str(kills)),
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert len(epochs_in(folder)) >= kills  # each went on where the one before was killed
    names = {path.name for path in folder.iterdir()}
    drafts = {name for name in names if name.startswith(".pulsora-")}  # of killed processes
    assert names - drafts == {"checkpoint.pt", "metrics.json", "records.jsonl"}


def test_killed_training_can_be_resumed(tmp_path: Path) -> None:
    kill(5, tmp_path)


@pytest.mark.nightly
def test_training_that_is_killed_two_hundred_times_can_be_resumed(tmp_path: Path) -> None:
    kill(200, tmp_path)
