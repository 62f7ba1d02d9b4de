"""Gradients of learned input ranges: with rounding, one-sided with decay; refusals."""

from __future__ import annotations

from typing import Any

import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

LIMIT = 0.7
IO = pl.IOParameters(
    noise_management="input_range", nm_thres=LIMIT, inp_res=14, out_res=0, out_noise=0,
    out_bound=0, bound_management="none",
)  # fmt: skip
GENERATOR = torch.Generator().manual_seed(3)
X = torch.randn(9, 20, generator=GENERATOR)
D = torch.randn(9, 5, generator=GENERATOR)


def layer_of(x: Any = X, **settings: Any) -> Any:  # noqa: ANN401
    """A layer of two tiles after one backward pass of the loss (y D)."""
    config = pl.InferenceConfig(**{"forward": IO} | settings)
    layer = pl.nn.AnalogLinear(20, 5, config=config, seed=1, max_input_size=12)
    (layer(x) * D).sum().backward()
    return layer


def exact_gradients() -> tuple[Any, Any]:
    """dL/dx and the weights, in double."""
    weight = layer_of().weight.detach().double()
    return D.double() @ weight, weight


def test_property_67_rounding_of_inputs_counts_in_a_quantised_range() -> None:
    _, weight = exact_gradients()
    limit = torch.tensor(LIMIT, dtype=torch.float64, requires_grad=True)
    relative = (X.double() / limit).clamp(-1.0, 1.0)
    levels = (relative * 7).round() / 7
    seen = limit * (relative + (levels - relative).detach())  # a straight-through estimate
    ((seen @ weight.T) * D.double()).sum().backward()
    layer = layer_of(range_gradient="lsq")
    assert layer.input_range.grad.item() == pytest.approx(limit.grad.item(), rel=1e-4)
    clip = layer_of().input_range.grad.item()
    assert abs(clip - limit.grad.item()) > 0.01 * abs(clip)


@pytest.mark.parametrize("width", [1.0, 0.2])
def test_property_67_a_one_sided_range_widens_or_decays(width: float) -> None:
    x = width * X
    dx, _ = exact_gradients()
    outside = x.abs() >= LIMIT
    inside = 1.0 - outside.double().mean().item()
    assert (inside > 0.9) == (width < 1.0)
    above = dx[x >= LIMIT].clamp(max=0.0).sum() - dx[x <= -LIMIT].clamp(min=0.0).sum()
    wanted = LIMIT * (above.item() + (0.03 if inside > 0.9 else 0.0))
    layer = layer_of(x, range_gradient="one_sided", range_decay=0.03, range_inside=0.9)
    assert layer.input_range.grad.item() == pytest.approx(wanted, rel=1e-4)
    assert wanted < 0.0 or width < 1.0


def test_a_range_is_trained_by_each_rule() -> None:
    found = {}
    for rule in ("clip", "lsq", "one_sided"):
        layer = layer_of(range_gradient=rule)
        before = layer.weight.grad.clone()
        torch.optim.SGD(layer.parameters(), lr=1e-3).step()
        found[rule] = layer.input_range.item()
        assert torch.equal(before, layer_of().weight.grad)
    assert len({*found.values(), LIMIT}) == 4
    assert found["one_sided"] > LIMIT


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"range_gradient": "lsq", "forward": pl.IOParameters()}, "no input range is learned"),
    (
        {"range_gradient": "one_sided", "forward": IO.replace(is_perfect=True)},
        "forward.is_perfect = False",
    ),
    ({"range_gradient": "lsq", "forward": IO.replace(inp_res=0)}, "forward.inp_res is 0"),
    ({"range_decay": 0.25}, "range_decay is 0.25, and only InferenceConfig.range_gradient"),
    ({"range_gradient": "lsq", "range_inside": 0.5}, "range_inside is 0.5, and only"),
    ({"range_gradient": "esser"}, "range_gradient"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSALS)
def test_gradients_without_a_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(pl.ConfigError) as refusal:
        layer_of(**settings)
    assert message in str(refusal.value)
