"""Calibrations by several processes, and the range with the least error of the outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

import calibration_runs as runs  # noqa: E402 - after torch
from distributed_models import processes  # noqa: E402


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return processes(runs.__file__, 2, tmp_path_factory.mktemp("calibration"))


def test_property_64_two_processes_find_the_ranges_of_one(pair: list[dict[str, Any]]) -> None:
    alone = runs.ranges([runs.X], None)
    for found in pair:
        for rule in ("quantile", "max", "sigma", "output_error", *runs.PARTS):
            assert found[rule] == _plain(alone[rule]), rule
        assert found["empty"] == alone["max"]
    assert len({str(alone[rule]) for rule in ("quantile", "max", "sigma", "output_error")}) == 4


def test_processes_learn_that_another_one_failed(pair: list[dict[str, Any]]) -> None:
    assert [each["refused"][0] for each in pair] == [
        "ValueError: the model is in training mode; call eval(), so that inputs have no noise"
    ] * 2
    for first, second in zip(*(each["refused"][1:] for each in pair), strict=True):
        assert first.startswith("RuntimeError: process 1 of the group failed: ")
        assert "of the group" not in second
    assert len(pair[0]["refused"]) == 4
    assert "give all processes the same model" in pair[0]["other"]
    assert pair[0]["other"] == pair[1]["other"]


def test_what_is_no_group_is_refused() -> None:
    with pytest.raises(TypeError, match=r"group = True: give a process group, such as"):
        pl.inference.calibrate(runs.model_of(), [runs.X], group=True)  # type: ignore[arg-type]


def _plain(found: Any) -> Any:  # noqa: ANN401
    """Returns the numbers as JSON has them."""
    return list(found) if isinstance(found, tuple) else found


@pytest.mark.parametrize("rule", ["input_range", "abs_max"])
@pytest.mark.parametrize("levels", [3, 15])
def test_the_range_with_the_least_error_of_outputs_is_found(rule: str, levels: int) -> None:
    forward = pl.IOParameters(noise_management=rule, inp_res=1 / levels)
    torch.manual_seed(2)
    layer: Any = pl.nn.AnalogLinear(
        20, 9, config=pl.InferenceConfig(forward=forward), max_input_size=12, seed=1
    ).eval()
    x = torch.randn(300, 20, generator=torch.Generator().manual_seed(1))
    found = pl.inference.calibrate(layer, list(x.split(37)), rule="output_error")[""]
    # An oracle: levels of the DAC by hand, and a product in double precision.
    w, inputs = layer.weight.detach().double().numpy(), x.double().numpy()
    largest = pl.inference.calibrate(layer, [x], rule="max")[""]
    limits = largest * 2.0 ** (-np.arange(41) / 8)
    steps = 1.0 / levels  # of a range of 1: inp_res of the two signs
    errors = []
    for limit in limits:
        seen = np.clip(np.rint(inputs / limit / (2 * steps)) * 2 * steps, -1, 1) * limit
        errors.append(float(np.square((seen - inputs) @ w.T).sum()))
    best = int(np.argmin(errors))
    assert 0 < best < 40
    assert found == pytest.approx(limits[best], rel=1e-6)
    assert (layer.config.forward.noise_management == "constant") == (rule == "abs_max")


def test_a_failing_model_keeps_its_converters() -> None:
    model = runs.model_of()
    model[0].tiles.set_io(forward=pl.IOParameters())
    before = [each.config.forward for each in (model[0], model[2])]
    with pytest.raises(ValueError, match="12 features"):
        pl.inference.calibrate(model, [runs.X, runs.X[:, :3]], rule="output_error")
    with pytest.raises(ValueError, match="write 'quantile', 'max', 'sigma' or 'output_error'"):
        pl.inference.calibrate(model, [runs.X], rule="least")  # type: ignore[arg-type]
    assert [each.config.forward for each in (model[0], model[2])] == before
