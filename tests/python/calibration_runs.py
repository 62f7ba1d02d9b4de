"""Calibrations for test_shared_calibration.py. Called as `distributed_runs.py`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

import distributed_runs as runs
import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed_models import World

ROWS = 48
RULES: list[dict[str, Any]] = [
    {"rule": "quantile", "quantile": 0.99},
    {"rule": "max"},
    {"rule": "sigma", "sigmas": 2.5},
    {"rule": "output_error"},
]
PARTS = ("layer", "tile", "output")
X = torch.randn(ROWS, 12, generator=torch.Generator().manual_seed(3)) * torch.linspace(
    0.1, 4.0, ROWS
).unsqueeze(1)


def model_of() -> Any:  # noqa: ANN401
    """Layers with a range of their inputs, whose DACs have 16 levels."""
    torch.manual_seed(5)
    forward = pl.IOParameters(noise_management="input_range", inp_res=1 / 15)
    net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 6))
    config = pl.InferenceConfig(forward=forward)
    return pl.convert_to_analog(net, config, max_input_size=7, seed=3).eval()


def ranges(batches: list[torch.Tensor], group: Any) -> dict[str, Any]:  # noqa: ANN401
    """Ranges of inputs by each rule, and of outputs of each part, with gains."""
    found: dict[str, Any] = {}
    for settings in RULES:
        model = model_of()
        found[settings["rule"]] = pl.inference.calibrate(model, batches, group=group, **settings)
    for per in PARTS:
        bounds = pl.inference.calibrate_outputs(model, batches, per=per, quantile=0.9, group=group)
        gains = [tile.programming.adc_gains.tolist() for tile in model[0].tiles]
        found[per] = [bounds, gains]
    return found


def failing(batch: torch.Tensor) -> Iterator[torch.Tensor]:
    yield batch
    raise OSError("no disk")


def refused(batches: list[torch.Tensor], group: Any) -> list[str]:  # noqa: ANN401
    """Messages to this process if a model is in training mode, or inputs of one process fail."""
    is_second = dist.get_rank() == 1
    fails = [batches[0][:, :5]] if is_second else batches
    cases: list[tuple[bool, Any, dict[str, Any]]] = [
        (True, batches, {}),
        (False, fails, {}),
        (is_second, batches, {}),
        (False, failing(batches[0]) if is_second else batches, {"rule": "output_error"}),
    ]
    said = []
    for training, given, options in cases:
        model = model_of().train(training)
        before = model.state_dict()
        try:
            pl.inference.calibrate(model, given, group=group, **options)
        except (RuntimeError, ValueError, OSError) as error:
            said.append(f"{type(error).__name__}: {error}")
        after = model.state_dict()
        assert all(torch.equal(after[name], each) for name, each in before.items())
    return said


def of_other_models(group: Any) -> str:  # noqa: ANN401
    """The message if processes have other layers."""
    model = nn.Sequential(*list(model_of())[: 3 if dist.get_rank() else 1]).eval()
    try:
        pl.inference.calibrate(model, [X], group=group)
    except ValueError as error:
        return str(error)
    return "nothing"


def run_all(world: World) -> dict[str, Any]:
    """Unequal parts of the data; the last process has the rest."""
    runs.begin(world)
    group = dist.group.WORLD
    cut = [7, 41] if world.size == 2 else [ROWS]
    mine = list(X.split(cut)[world.rank].split(5))
    few = [] if world.rank == 0 else [X]
    empty = pl.inference.calibrate(model_of(), few, rule="max", group=group)
    return {
        **ranges(mine, group),
        "empty": empty,
        "refused": refused(mine, group),
        "other": of_other_models(group),
    }


if __name__ == "__main__":
    sys.exit(runs.main(run_all))
