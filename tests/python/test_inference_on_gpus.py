"""Verbs of `pulsora.inference` give on a GPU the results that they give on a CPU.

Reads in integers have the bits of the CPU, and so has a network of them with biases and ReLU. Batch
norms, softmax and products of torch are rounded in another way on a GPU. An input of a layer that
lies near the edge between two levels of its converter may then take the other level, which is
1/63 of the largest input of a tile away. Tolerances allow for a few such inputs.
"""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMES = [1.0, 1e6]
SAMPLES = 48
TABLE: dict[str, Any] = {
    "cell": "table",
    "table_w": [-1.0, -0.4, 0.0, 0.5, 1.0],
    "table_g": [0.05, 0.2, 0.5, 0.7, 0.95, 0.85, 0.52, 0.5, 0.3, 0.15],
}
CELLS: dict[str, dict[str, Any]] = {
    "pair": {},
    "two_sided_pair": {"cell": "two_sided_pair"},
    "pairs": {"cell": "pairs", "significance": [1.0, 4.0]},
    "single": {"cell": "single"},
    "single of the data": {"cell": "single", "single_span": "data"},
    "single, column": {"cell": "single", "cell_reference": "column"},
    "slices": {"cell": "slices"},
    "slices together": {"cell": "slices", "slice_converters": "shared"},
    "table": TABLE,
    "table of levels": {**TABLE, "cell_bits": 3},
}


class Block(nn.Module):
    """A block of a transformer over five tokens of six numbers, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 12)
        self.norms = nn.ModuleList([nn.LayerNorm(12), nn.LayerNorm(12)])
        self.qkv = nn.Linear(12, 36)
        self.out = nn.Linear(12, 12)
        self.up, self.down = nn.Linear(12, 20), nn.Linear(20, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        q, k, v = self.qkv(self.norms[0](h)).chunk(3, dim=-1)
        h = h + self.out((q @ k.mT / 12**0.5).softmax(-1) @ v)
        h = h + self.down(torch.relu(self.up(self.norms[1](h))))
        return self.head(h.mean(1))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 4))


def convnet() -> nn.Module:
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip
    net(inputs(1, 8, 8))  # running statistics
    return net


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (perceptron, (20,)),
    "convnet": (convnet, (1, 8, 8)),
    "block": (Block, (5, 6)),
}


def inputs(*shape: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(SAMPLES, *shape, generator=generator)


def analog(made: str = "perceptron", **settings: Any) -> Any:  # noqa: ANN401 - layers by number
    """Returns a network on arrays, on several tiles each, in eval()."""
    torch.manual_seed(0)
    make, shape = NETS[made]
    net = make().eval()
    with torch.no_grad():
        list(net.modules())[-1].bias -= net(inputs(*shape)).mean(0)  # all classes are frequent
    config = pl.InferenceConfig(**settings)
    return pl.convert_to_analog(net, config, max_input_size=12, max_output_size=9, seed=3).eval()


def classified(model: nn.Module, shape: tuple[int, ...]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns two batches with the classes that the exact weights give."""
    x = inputs(*shape)
    with torch.no_grad():
        wanted = pl.convert_to_digital(model)(x).argmax(-1)
    return list(zip(x.split(30), wanted.split(30), strict=True))


def on(device: str, given: Any) -> Any:  # noqa: ANN401 - a model, or batches
    """Returns a copy of a model, or a batch or batches, on a device."""
    if isinstance(given, list | tuple):
        return type(given)(on(device, each) for each in given)
    return copy.deepcopy(given).to(device)


def loss(y: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Returns the cross entropy of each sample; the factor makes small outputs count."""
    return nn.functional.cross_entropy(20.0 * y, wanted, reduction="none")


def hits(y: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (y.argmax(-1) == wanted).float()


@torch.no_grad()
def looped(
    model: nn.Module,
    batches: list[Any],
    metric: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    prepare: Callable[[nn.Module], object] = lambda _: None,
) -> np.ndarray[Any, Any]:
    """Returns the metric of single programmings, [times, programmings of two chips]."""
    values = np.empty((len(TIMES), 4))
    for column in range(4):
        pl.program(model, column % 2, chip=column // 2)
        for row, time in enumerate(TIMES):
            pl.drift(model, time)
            prepare(model)
            values[row, column] = np.mean(
                torch.cat([metric(model(x), y) for x, y in batches]).double().cpu().numpy()
            )
    return values


def evaluated(model: nn.Module, batches: list[Any], **options: Any) -> np.ndarray[Any, Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*one realisation at a time")
        report = pl.inference.evaluate(
            model, batches, times=TIMES, programmings=2, chips=2, **options
        )
    assert len(np.unique(report.values)) > 2
    return report.values


@pytest.mark.parametrize("made", NETS)
def test_a_report_is_that_of_the_loop_and_of_the_cpu(made: str, device: str) -> None:
    model = analog(made, stuck_low=0.02, read_window=1e-3)
    batches = classified(model, NETS[made][1])
    here, there, moved = on("cpu", model), on(device, model), on(device, batches)
    accuracy = evaluated(there, moved)
    losses = evaluated(there, moved, metric=loss)
    expected = evaluated(here, batches), evaluated(here, batches, metric=loss)
    loops = looped(there, moved, hits), looped(there, moved, loss)
    # A perceptron has the same outputs to the bit; other networks may read a few levels apart.
    most = 0.0 if made == "perceptron" else 1.0 / SAMPLES
    assert np.abs(accuracy - expected[0]).max() <= most + 1e-12
    assert np.abs(accuracy - loops[0]).max() <= most + 1e-12
    rtol = 1e-5 if made == "perceptron" else 2e-2
    np.testing.assert_allclose(losses, expected[1], rtol=rtol)
    np.testing.assert_allclose(losses, loops[1], rtol=rtol)


@pytest.mark.parametrize("settings", CELLS.values(), ids=CELLS)
def test_programmed_cells_have_the_bits_of_the_cpu(settings: dict[str, Any], device: str) -> None:
    model = analog(stuck_low=0.03, compensation="per_output", **settings)
    here, there = on("cpu", model), on(device, model)
    x = inputs(20)
    for number, time, chip in ((3, 0.0, 0), (2**40, 3600.0, 0), (1, 1e7, 2)):
        pl.drift(pl.program(here, number, chip=chip), time)
        pl.program(there, number, chip=chip, time=time)
        for mine, its in zip(*map(pl.inference.programmed_tiles, (here, there)), strict=True):
            assert its.device == str(there[0].weight.device)
            for which in ("target", "programmed", "now"):
                wanted, found = (tile.programming.conductances(which) for tile in (mine, its))
                assert np.array_equal(found, wanted), which
            assert np.array_equal(its.weights, mine.weights)
            assert its.programming.scales == mine.programming.scales
            assert its.programming.compensation == mine.programming.compensation
            assert its.programming.point == mine.programming.point
        with torch.no_grad():
            assert torch.equal(there(x.to(device)).cpu(), here(x))


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("rule", ["quantile", "max", "sigma"])
def test_input_ranges_are_those_of_the_cpu(rule: str, learned: bool, device: str) -> None:
    forward = pl.IOParameters(noise_management="input_range" if learned else "abs_max")
    model = analog(forward=forward)
    x = inputs(20)
    settings: Any = {"rule": rule, "quantile": 0.97}
    here = on("cpu", model)
    expected = pl.inference.calibrate(here, [x], **settings)
    for rows in (SAMPLES, 7, 1):
        there = on(device, model)
        found = pl.inference.calibrate(there, x.to(device).split(rows), **settings)
        # Products of torch are rounded in another way, which may move a value to the next bin.
        assert found["0"] == expected["0"]
        assert found["2"] == pytest.approx(expected["2"], rel=2.0**-9)
    exact = float(x.abs().quantile(0.97, interpolation="higher"))
    exact = {"max": float(x.abs().max()), "sigma": 3.0 * float(x.square().mean().sqrt())}.get(
        rule, exact
    )
    assert found["0"] == pytest.approx(exact, rel=2e-3)
    if learned:
        assert there[0].input_range.device.type == device
        assert there[0].input_range.item() == pytest.approx(found["0"])
    else:
        assert there[2].config.forward.nm_thres == pytest.approx(found["2"])
    # The first layer has the same range and the same inputs.
    pl.drift(pl.program(here, 2), 60.0)
    pl.drift(pl.program(there, 2), 60.0)
    with torch.no_grad():
        assert torch.equal(there[0](x.to(device)).cpu(), here[0](x))


@pytest.mark.parametrize(
    ("per", "cell"),
    [("layer", "pair"), ("tile", "pair"), ("output", "pair"), ("slice", "slices"),
     ("output", "slices")],
)  # fmt: skip
def test_output_ranges_of_exact_sums_have_the_bits_of_the_cpu(
    per: str, cell: str, device: str
) -> None:
    # Inputs, weights and digits of few bits, whose sums are exact in any order.
    quiet = pl.IOParameters(
        inp_res=0, out_res=0, out_noise=0, inp_bound=1, out_bound=0, bound_management="none",
        noise_management="constant", nm_thres=1.0,
    )  # fmt: skip
    settings: Any = {"cell": cell} | ({"slice_bits": 1} if cell == "slices" else {})
    layer: Any = pl.nn.AnalogLinear(
        20, 6, config=pl.InferenceConfig(forward=quiet, **settings), seed=1, max_input_size=12
    ).eval()
    generator = torch.Generator().manual_seed(2)
    x, weight = (torch.randint(-8, 9, (n, 20), generator=generator) / 8 for n in (SAMPLES, 6))
    weight[:, ::10] = 1.0  # the scale of each output in each tile
    with torch.no_grad():
        layer.weight.copy_(weight)
    for quantile in (0.9, 1.0):
        here, there = on("cpu", layer), on(device, layer)
        options: Any = {"quantile": quantile, "per": per}
        expected = pl.inference.calibrate_outputs(here, [x], **options)
        batches = x.to(device).split(11)
        assert pl.inference.calibrate_outputs(there, batches, **options) == expected
        gains, wanted = (
            np.stack([tile.programming.adc_gains for tile in each.tiles]) for each in (there, here)
        )
        assert np.array_equal(gains, wanted)
        assert there.config.forward.out_bound == pytest.approx(expected[""])
    # The largest sums, [tiles, slices, outputs], are the ranges for the quantile 1.
    parts = [weight]
    if cell == "slices":
        whole = (127 * weight.abs()).round().int()
        parts = [(whole >> shift) % 2 * weight.sign() for shift in range(7)]
    halves = [torch.stack(parts)[..., c] @ x[:, c].T for c in (slice(10), slice(10, 20))]
    largest = torch.stack(halves).abs().amax(-1)
    axes = {"layer": (0, 1, 2), "tile": (1, 2), "slice": (2,), "output": ()}[per]
    own = largest.amax(axes, keepdim=True) if axes else largest
    assert expected[""] == pytest.approx(float(largest.max()), rel=2.0**-9)
    found = torch.from_numpy(gains) * own / largest.max()
    assert (found[(own > 0.0).expand_as(found)] - 1.0).abs().max() < 2.0**-8


def test_ranges_of_a_network_are_those_of_the_cpu_and_so_is_its_report(device: str) -> None:
    model = analog()
    batches = classified(model, (20,))
    values = []
    for place in ("cpu", device):
        each, moved = on(place, model), on(place, batches)
        ranges = pl.inference.calibrate(each, moved, quantile=0.99)
        bounds = pl.inference.calibrate_outputs(each, moved, quantile=0.99, per="output")
        values.append((ranges, bounds, evaluated(each, moved), evaluated(each, moved, metric=loss)))
        np.testing.assert_allclose(values[-1][2], looped(each, moved, hits), atol=1e-12)
    (ranges, bounds, accuracy, losses), (its_ranges, its_bounds, its_accuracy, its_losses) = values
    assert its_ranges == pytest.approx(ranges, rel=2.0**-9)
    assert its_bounds["0"] == pytest.approx(bounds["0"], rel=2.0**-9)
    assert its_bounds["2"] == pytest.approx(bounds["2"], rel=2e-2)
    assert np.abs(its_accuracy - accuracy).max() <= 1.0 / SAMPLES + 1e-12
    np.testing.assert_allclose(its_losses, losses, rtol=2e-2)


def test_affine_corrections_are_those_of_the_cpu(device: str) -> None:
    model = analog(compensation="none")
    batches = classified(model, (20,))
    x = torch.cat([each for each, _ in batches])
    found, reports = [], []
    for place in ("cpu", device):
        each, moved = on(place, model), on(place, batches)
        pl.drift(pl.program(each, 3), 1e7)
        with torch.no_grad():
            plain = (each[0](x.to(place)) - each[0].bias).double().cpu().numpy()
        pl.drift(each, 1e7)
        found.append({n: t.cpu() for n, t in pl.inference.fit_affine(each, moved).items()})
        prepare = {"prepare": lambda m, moved=moved: pl.inference.fit_affine(m, moved)}
        reports.append(evaluated(each, moved, metric=loss, **prepare))
        loop = looped(each, moved, loss, **prepare)
        np.testing.assert_allclose(reports[-1], loop, rtol=1e-4)
    torch.testing.assert_close(found[1]["0"], found[0]["0"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1]["2"], found[0]["2"], rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(reports[1], reports[0], rtol=2e-2)
    exact = (x @ model[0].weight.T).detach().double().numpy()
    for i in range(16):  # the last device's outputs
        gain, offset = np.polyfit(plain[:, i], exact[:, i], 1)
        assert found[1]["0"][:, i].tolist() == pytest.approx([gain, offset], rel=1e-3, abs=1e-4)


def test_batch_norms_adapt_as_on_the_cpu(device: str) -> None:
    model = analog("convnet", compensation="none")
    batches = classified(model, (1, 8, 8))
    norms, reports = [], []
    for place in ("cpu", device):
        each, moved = on(place, model), on(place, batches[:1])
        pl.drift(pl.program(each, 3), 1e7)
        assert pl.inference.adapt_batch_norm(each, moved) == 2
        statistics = [(each[k].running_mean, each[k].running_var) for k in (1, 5)]
        norms.append([b.clone().cpu() for pair in statistics for b in pair])
        pl.drift(each, 1e7)
        with torch.no_grad():
            first = each[0](moved[0][0])
        torch.testing.assert_close(each[1].running_mean, first.mean((0, 2, 3)))
        torch.testing.assert_close(each[1].running_var, first.transpose(0, 1).flatten(1).var(1))
        prepare = {"prepare": lambda m, moved=moved: pl.inference.adapt_batch_norm(m, moved)}
        reports.append(evaluated(each, on(place, batches), metric=loss, **prepare))
    assert not torch.equal(norms[0][0], model[1].running_mean)
    torch.testing.assert_close(norms[1][:2], norms[0][:2])
    torch.testing.assert_close(norms[1][2:], norms[0][2:], rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(reports[1], reports[0], rtol=2e-2)


def test_explanations_are_those_of_the_cpu(device: str) -> None:
    model = analog(cell_bits=4, compensation="none", stuck_low=0.01)
    x = inputs(20)
    here, there = on("cpu", model), on(device, model)
    point: Any = {"time": "1 year", "programming": 2, "chip": 1}
    expected = pl.inference.explain(here, x, **point)
    found = pl.inference.explain(there, x.to(device), **point)
    assert [each[:2] for each in found.sources[:4]] == [each[:2] for each in expected.sources[:4]]
    assert {each[:2]: each.error for each in found.sources} == pytest.approx(
        {each[:2]: each.error for each in expected.sources}, rel=1e-2
    )
    assert found.totals == pytest.approx(expected.totals, rel=1e-2)
    # The total of the first layer is the error of its reads in the programmed model.
    pl.drift(pl.program(there, 2, chip=1), "1 year")
    with torch.no_grad():
        exact = x @ model[0].weight.T
        y = (there[0](x.to(device)) - there[0].bias).cpu()
    assert found.totals["0"] == pytest.approx(float((y - exact).norm() / exact.norm()), rel=1e-4)


@pytest.mark.parametrize(
    "settings", [{}, {"cell": "slices"}, TABLE], ids=["pair", "slices", "table"]
)
def test_conductances_go_from_device_to_device(
    settings: dict[str, Any], device: str, tmp_path: Path
) -> None:
    pytest.importorskip("safetensors.numpy")
    model = analog(**settings)
    x = inputs(20)
    here, there = (pl.drift(pl.program(on(p, model), 5), 3600.0) for p in ("cpu", device))
    for which in ("target", "now", "programmed"):
        written = []
        for name, each in (("here", here), ("there", there)):
            folder = tmp_path / which / name
            folder.mkdir(parents=True)
            pl.inference.save_conductances(each, folder, which=which, tables=which == "now")
            written.append({path.name: path.read_bytes() for path in folder.iterdir()})
        assert len(written[0]) == (4 if which == "now" else 2)
        assert written[1] == written[0]
    pl.drift(here, "1 day")
    with torch.no_grad():
        y = here(x)
    for source, place in (("here", device), ("there", "cpu")):
        loaded = on(place, model)
        pl.inference.load_conductances(loaded, tmp_path / "programmed" / source, number=5)
        pl.drift(loaded, "1 day")
        for mine, its in zip(*map(pl.inference.programmed_tiles, (here, loaded)), strict=True):
            assert its.programming.is_measured
            assert np.array_equal(its.programming.conductances(), mine.programming.conductances())
        with torch.no_grad():
            assert torch.equal(loaded(x.to(place)).cpu(), y)
