"""Runs with predicted steps: what `pulsora train --hybrid` does."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from typer.testing import CliRunner

from pulsora.cli import app
from pulsora.forecast import HybridTrainer
from pulsora.training import data as datasets
from pulsora.training.experiment import Experiment
from pulsora.training.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from pulsora.training.run import Metrics

SETTINGS: dict[str, Any] = {"algorithm": "digital", "epochs": 6, "hybrid": 0.3}


def weights(run: Run) -> list[bytes]:
    return [value.detach().numpy().tobytes() for value in run.model.state_dict().values()]


class StopHere(Exception):  # noqa: N818 - it is no error
    """Raised by a test in the midst of a run."""


@pytest.mark.parametrize("algorithm", ["digital", "pulsed"])
def test_a_run_makes_fewer_passes_and_goes_on_to_the_bit(algorithm: str, tmp_path: Path) -> None:
    experiment = Experiment(**(SETTINGS | {"algorithm": algorithm}))
    whole = Run(experiment, threads=1)
    told: list[float] = []
    history = whole.train(on_batch=told.append)
    steps = 6 * whole.batches
    assert whole.passes == whole.passes_made == len(told) == steps - round(0.3 * steps)
    assert len(history) == math.ceil(whole.passes / whole.batches)
    assert history[-1]["accuracy"] > 0.7  # of ten classes
    first = told[: whole.batches]
    assert history[0]["loss"] == pytest.approx(sum(first) / len(first), rel=1e-6)
    report = whole.report()
    assert report is not None
    assert report.passes == whole.passes
    assert len(report.jumps) == 10
    if algorithm == "pulsed":
        assert 0 < report.pulses_of_jumps < report.pulses

    def stop(metrics: Metrics) -> None:
        if metrics["epoch"] == 2.0:
            raise StopHere

    with pytest.raises(StopHere):
        Run(experiment, tmp_path, threads=1).train(on_epoch=stop)
    resumed = Run(experiment, tmp_path, resume=True, threads=1)
    assert resumed.passes_made == 2 * whole.batches
    assert [row | {"seconds": 0} for row in resumed.train()] == [
        row | {"seconds": 0} for row in history
    ]
    assert weights(resumed) == weights(whole)
    assert resumed.report() == report


def test_it_is_the_trainer_that_one_would_write() -> None:
    run = Run(Experiment(**SETTINGS), threads=1)
    run.train()
    twin = Run(Experiment(**(SETTINGS | {"hybrid": 0.0})), threads=1)

    def loss(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

    trainer = HybridTrainer(twin.model, twin.optimizer, loss, steps=twin.passes, saved=0.3)
    trainer.train(
        lambda epoch: (
            (torch.from_numpy(x), torch.from_numpy(y))
            for x, y in datasets.batches(twin.data, twin.experiment.batch, 0, epoch)
        ),
        progress=False,
    )
    assert weights(run) == weights(twin)
    assert twin.report() is None


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    for share in (1.0, -0.1, math.nan, True, "0.3"):
        with pytest.raises(ValueError, match="hybrid must be a number of at least 0 and below 1"):
            Experiment(hybrid=share)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"hybrid = 0.9 does not fit into 2 epochs of 42 .*train for"
    ):
        Run(Experiment(algorithm="digital", epochs=2, hybrid=0.9))
    Run(Experiment(**(SETTINGS | {"epochs": 1})), tmp_path).train()
    with pytest.raises(ValueError, match=r"of another experiment \(epochs = 1, here 2\)"):
        Run(Experiment(**(SETTINGS | {"epochs": 2})), tmp_path, resume=True)
    with pytest.raises(ValueError, match=r"hybrid = 0.3, here 0.0"):
        Run(Experiment(algorithm="digital", epochs=1), tmp_path, resume=True)


def test_the_command_says_what_was_saved(tmp_path: Path) -> None:
    command = ["train", "--out", str(tmp_path), "--algorithm", "digital", "--epochs", "3"]
    result = CliRunner().invoke(app, [*command, "--hybrid", "0.3"])
    said = " ".join(result.output.split())
    assert result.exit_code == 0, said
    assert "88 of 88 backward passes, in place of 126 (30% saved)" in said
    assert "jumps (linear)" in said
    report = json.loads((tmp_path / "metrics.json").read_text())
    assert report["experiment"]["hybrid"] == 0.3
    assert len(report["epochs"]) == 3
    again = CliRunner().invoke(app, [*command, "--hybrid", "0.3", "--resume"])
    assert "already has 3 epochs; its length was planned" in " ".join(again.output.split())


@pytest.mark.filterwarnings("default")
def test_warnings_of_a_command_are_one_line(tmp_path: Path) -> None:
    command = ["train", "--out", str(tmp_path), "--epochs", "1", "--rank", "2", "--hybrid", "0.1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    (line,) = [line for line in result.stderr.splitlines() if line]
    assert line.startswith("warning: the model has tiles with adapters")
