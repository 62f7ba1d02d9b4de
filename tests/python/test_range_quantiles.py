"""Quantiles of calibrated ranges: within 2^-10, with the same bits for any split of the data."""

from __future__ import annotations

from typing import Any

import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

QUIET = pl.IOParameters(
    inp_res=0, out_res=0, out_noise=0, inp_bound=1, out_bound=0, bound_management="none",
    noise_management="constant", nm_thres=1.0,
)  # fmt: skip
ROWS, COLS = 96, 20


def layer_of() -> Any:  # noqa: ANN401
    """A layer of two tiles."""
    config = pl.InferenceConfig(forward=QUIET)
    return pl.nn.AnalogLinear(COLS, 6, config=config, seed=1, max_input_size=12).eval()


def splits(x: torch.Tensor) -> dict[str, list[torch.Tensor]]:
    """Batches of the same samples, cut in several ways."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(3))
    return {
        "whole": [x],
        "single samples": list(x.split(1)),
        "unequal": list(x.split([50, 1, 7, 38])),
        "shuffled": list(x[order].split(11)),
    }


def magnitude_at(values: torch.Tensor, share: float) -> float:
    """The smallest magnitude that holds this share of the values."""
    ordered = values.flatten().abs().double().sort().values
    at = int((torch.arange(1, len(ordered) + 1) >= share * len(ordered)).nonzero()[0])
    return float(ordered[at])


@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.9, 0.999, 0.9999, 1.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 3e7])
def test_property_64_quantiles_of_inputs_are_exact_to_ten_bits(
    quantile: float, scale: float
) -> None:
    x = torch.randn(ROWS, COLS, generator=torch.Generator().manual_seed(1)) * scale
    x[::5, 3:9] = 0.0  # counted as all others are
    found = {
        name: pl.inference.calibrate(layer_of(), batches, quantile=quantile)[""]
        for name, batches in splits(x).items()
    }
    assert len(set(found.values())) == 1, found
    exact = magnitude_at(x, quantile)
    assert exact <= found["whole"] <= exact * (1.0 + 2.0**-10)


@pytest.mark.parametrize("rule", ["max", "sigma"])
def test_property_64_other_rules_do_not_depend_on_the_split(rule: Any) -> None:  # noqa: ANN401
    x = torch.randn(ROWS, COLS, generator=torch.Generator().manual_seed(1))
    found = {
        name: pl.inference.calibrate(layer_of(), batches, rule=rule)[""]
        for name, batches in splits(x).items()
    }
    assert len(set(found.values())) == 1, found
    exact = float(x.abs().max() if rule == "max" else 3.0 * x.double().square().mean().sqrt())
    assert found["whole"] == pytest.approx(exact, rel=2.0**-10)


@pytest.mark.parametrize("per", ["layer", "tile", "output"])
@pytest.mark.parametrize("quantile", [0.5, 0.99])
def test_property_64_quantiles_of_outputs_are_exact_to_ten_bits(
    per: Any,  # noqa: ANN401
    quantile: float,
) -> None:
    # Inputs and weights of few bits, whose sums are exact however a product is cut.
    generator = torch.Generator().manual_seed(2)
    x = torch.randint(-8, 9, (ROWS, COLS), generator=generator) / 8
    weight = torch.randint(-8, 9, (6, COLS), generator=generator) / 8
    weight[:, ::10] = 1.0  # the scale of each output in each tile
    found, gains = {}, {}
    for name, batches in splits(x).items():
        layer = layer_of()
        with torch.no_grad():
            layer.weight.copy_(weight)
        found[name] = pl.inference.calibrate_outputs(layer, batches, quantile=quantile, per=per)[""]
        gains[name] = [tile.programming.adc_gains.tolist() for tile in layer.tiles]
    assert len(set(found.values())) == 1, found
    assert all(each == gains["whole"] for each in gains.values())
    sums = torch.stack([x[:, part] @ weight[:, part].T for part in (slice(0, 10), slice(10, 20))])
    parts = {
        "layer": [sums],
        "tile": list(sums),
        "output": [sums[i, :, j] for i in range(2) for j in range(6)],
    }[per]
    exact = [magnitude_at(part, quantile) for part in parts]
    assert max(exact) <= found["whole"] <= max(exact) * (1.0 + 2.0**-10)
    seen = torch.tensor(gains["whole"]).flatten()
    wanted = max(exact) / torch.tensor(exact)
    each = {"layer": 12, "tile": 6, "output": 1}[per]
    assert (seen / wanted.repeat_interleave(each) - 1.0).abs().max() <= 2.0**-9
