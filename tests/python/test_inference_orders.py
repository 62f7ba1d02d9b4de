"""Programmed models after calls in unusual orders, and inputs of unusual types."""

from __future__ import annotations

from collections import UserDict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
QUIET = pl.IOParameters(out_noise=0.0)
PERFECT = pl.IOParameters(is_perfect=True)


def model_of(**settings: Any) -> Any:  # noqa: ANN401 - layers by number
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    config = pl.InferenceConfig(**({"forward": QUIET} | settings))
    return pl.convert_to_analog(net, config, seed=1).eval()


@pytest.mark.parametrize("cell", ["pair", "slices"])
def test_gains_after_the_programming_are_those_before_it(cell: str) -> None:
    found = []
    for programs_first in (True, False):
        model = model_of(cell=cell)
        pl.inference.calibrate(model, [X])
        if programs_first:
            pl.drift(pl.program(model, 3), 1e6)
        pl.inference.calibrate_outputs(model, [X], per="output", quantile=0.9)
        if not programs_first:
            pl.drift(pl.program(model, 3), 1e6)
        found.append((model(X), [t.programming.compensation for t in model[2].tiles]))
        loaded = model_of(cell=cell)
        loaded.load_state_dict(model.state_dict())
        assert torch.equal(loaded(X), found[-1][0])
        assert torch.equal(pl.drift(loaded, 1e6)(X), found[-1][0])
    assert found[0][1] == found[1][1]
    assert torch.equal(found[0][0], found[1][0])


def test_gains_do_not_change_the_numbers_of_reads() -> None:
    model, other = (pl.program(model_of(forward=pl.IOParameters()), 3) for _ in range(2))
    for each in (model, other):
        each(X)
    for tile in pl.inference.programmed_tiles(model):
        tile.programming.adc_gains = 2.0
        tile.programming.adc_gains = 1.0
    assert torch.equal(model(X), other(X))


@pytest.mark.parametrize(
    "call", [pl.inference.calibrate_outputs, lambda m, x: pl.inference.explain(m, x[0])]
)
def test_stale_arrays_are_not_looked_at(call: Callable[[Any, Any], object]) -> None:
    model = pl.program(model_of())
    with torch.no_grad():
        model[0].weight[:, :2] *= 20
    with pytest.raises(pl.StateError, match="changed after they were programmed"):
        call(model, [X])


def test_a_refused_evaluation_leaves_a_stale_layer_refused() -> None:
    model = pl.program(model_of())
    with torch.no_grad():
        model[2].weight += 1.0
    for _ in range(2):
        with pytest.raises(pl.StateError, match="program"):
            model(X)
        with pytest.raises(ValueError, match="metric gave"):
            pl.inference.evaluate(model, [(X, X)], metric=lambda *_: 1.0)  # type: ignore[arg-type]


def test_conductances_belong_to_the_weights_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    model = pl.program(model_of())
    pl.inference.save_conductances(model, tmp_path)
    with torch.no_grad():
        model[0].weight.mul_(3)
    with pytest.raises(ValueError, match="is not that of the model's weights"):
        pl.inference.load_conductances(model, tmp_path)
    with pytest.raises(pl.StateError, match="program"):
        model(X)


def test_conductances_after_drift_are_no_programming(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    model = pl.drift(pl.program(model_of()), "1 year")
    pl.inference.save_conductances(model, tmp_path, which="now")
    with pytest.raises(ValueError, match="would drift once more; save those of which='programmed'"):
        pl.inference.load_conductances(model, tmp_path)


def test_conductances_in_other_units_are_refused(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    model = pl.program(model_of())
    y = model(X)
    array = model[0].tiles.grid[0][0].programming
    g = array.conductances("programmed")
    for factor in (1e-6, 1e3):
        with pytest.raises(pl.InputError, match=r"g_max of the noise model is 25 uS; give uS"):
            array.program_measured(factor * g)
    pl.inference.save_conductances(model, tmp_path)
    path = tmp_path / "conductances.safetensors"
    tensors = safetensors.load_file(path)
    tensors["2/0_0"] *= np.float32(1e-6)
    safetensors.save_file(tensors, path)
    with pytest.raises(ValueError, match=r"tensor '2/0_0': the largest .*not siemens"):
        pl.inference.load_conductances(model, tmp_path)
    assert torch.equal(pl.drift(model, 0.0)(X), y)
    array.program_measured(0.0 * g)  # a chip may be dead


@pytest.mark.parametrize("converters", ["same", "file"])
def test_perfect_reads_take_no_converters(tmp_path: Path, converters: Any) -> None:  # noqa: ANN401
    pytest.importorskip("safetensors")
    pl.inference.save_conductances(pl.program(model_of(), 2), tmp_path, which="programmed")
    model = model_of(forward=PERFECT)
    before = model[0].config
    with pytest.raises(ValueError, match="reads perfectly in the model; load with converters="):
        pl.inference.load_conductances(model, tmp_path, converters=converters)
    assert model[0].config == before
    pl.inference.load_conductances(model, tmp_path, number=2, converters="model")
    assert torch.equal(pl.drift(model, 60.0)(X), pl.drift(pl.program(model, 2), 60.0)(X))


def test_ranges_that_are_still_to_come_are_saved_and_loaded(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    model = pl.program(model_of(forward=QUIET.replace(noise_management="input_range")))
    pl.inference.save_conductances(model, tmp_path)
    for converters in ("same", "file"):
        pl.inference.load_conductances(model, tmp_path, converters=converters)
    assert float(model[0].input_range.detach()) == 0.0


def test_a_state_of_before_a_calibration_can_be_loaded_after_it() -> None:
    model = model_of()
    before = model.state_dict()
    y = pl.program(model)(X)
    pl.inference.calibrate(model, [X])
    between = model.state_dict()
    pl.inference.calibrate_outputs(model, [X])
    model.load_state_dict(between)
    assert model[0].config.forward.bound_management == QUIET.bound_management
    model.load_state_dict(before)
    assert model[0].config.forward == QUIET
    assert torch.equal(pl.program(model)(X), y)


def test_a_correction_made_in_inference_mode_may_be_trained_with() -> None:
    base = pl.drift(pl.program(model_of()), 1e6)
    model = pl.peft.add_adapters(base, "analog_base_digital_adapter", rank=2, seed=1).eval()
    with torch.inference_mode():
        pl.inference.fit_affine(model, [X])
        state = model.state_dict()
    model.train()(X).sum().backward()
    with torch.inference_mode():
        model.load_state_dict(state)
    model(X).sum().backward()


class Named(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.layer(given)


def test_inputs_by_name_may_be_any_mapping() -> None:
    model = pl.convert_to_analog(Named(), pl.InferenceConfig(), seed=1).eval()
    batch = UserDict({"given": X})
    assert pl.inference.calibrate(model, [batch]) == pl.inference.calibrate(model, [{"given": X}])
    pl.inference.calibrate_outputs(model, [batch])
    assert (
        pl.inference.explain(model, batch).totals
        == pl.inference.explain(model, {"given": X}).totals
    )
    pl.inference.fit_affine(pl.program(model), [batch])


def test_a_state_of_a_bank_has_the_adapter_that_is_selected() -> None:
    def bank() -> Any:  # noqa: ANN401
        return pl.peft.add_adapters(
            model_of(), "analog_base_digital_adapter", rank=4, adapters=2, seed=1,
            gate=lambda *_: pl.nn.AgeGate([1.0, 1e6]),
        ).eval()  # fmt: skip

    model, other = pl.program(bank()), bank()
    for adapter in (model[0], model[2]):
        torch.nn.init.normal_(adapter.a, generator=torch.Generator().manual_seed(1))
    pl.drift(model, 1e6)
    pl.inference.select_age(model, 1e6)
    state = model.state_dict()
    assert state["0.gate.task"] == 1
    other.load_state_dict(state)
    assert torch.equal(other(X), model(X))
    del state["0.gate.task"], state["2.gate.task"]  # as in earlier versions
    other.load_state_dict(state)
    assert int(other[0].gate.task) == 1  # as it was
    with pytest.raises(RuntimeError, match=r"0\.gate\.task: task = .*numbered from 0 to 1"):
        other.load_state_dict({**state, "0.gate.task": torch.tensor(7)})


@pytest.mark.parametrize(("adapters", "ages"), [(1, [1.0, 9.0]), (3, [1.0]), (3, [1.0, 9.0])])
def test_a_gate_by_age_selects_one_adapter_of_the_pool(adapters: int, ages: list[float]) -> None:
    message = rf"selects one of {len(ages)} adapters, and the pool has {adapters}; write adapters="
    with pytest.raises(ValueError, match=message):
        pl.peft.add_adapters(
            model_of(), "analog_base_digital_adapter", rank=2, adapters=adapters,
            gate=lambda *_: pl.nn.AgeGate(ages),
        )  # fmt: skip


def test_constant_gates_fit_their_adapter() -> None:
    with pytest.raises(ValueError, match="the gate gives 4 weights for each sample; this adapter"):
        pl.peft.add_adapters(
            model_of(), "analog_base_digital_adapter", rank=2, adapters=3, gate=[1.0] * 4
        )


def test_adapters_in_arrays_are_evaluated_one_realisation_at_a_time_without_a_warning() -> None:
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    model = pl.peft.add_adapters(
        net, "analog_base", adapter_span="layer", rank=2, base_config=pl.InferenceConfig(), seed=1
    ).eval()
    batches = [(X, X[:, :4].argmax(1))]
    report = pl.inference.evaluate(model, batches, times=[1.0, 1e6], programmings=2)
    assert report.values.shape == (2, 2)
