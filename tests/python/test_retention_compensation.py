"""Drift compensation of pulsed arrays: factors in numpy, training at an age, states, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from pulsora import noise_models

if TYPE_CHECKING:
    from numpy.typing import NDArray

POWER = noise_models.PowerLaw(nu_mean=[0.06, 0.04], nu_std=[0.02, 0.02], read_noise=[0.01, 0.01])
EXACT = noise_models.PowerLaw(nu_mean=[0.05, 0.05], nu_std=[0.0, 0.0], read_noise=[0.0, 0.0])
PERFECT = {
    "forward": pl.IOParameters(is_perfect=True),
    "backward": pl.IOParameters(is_perfect=True),
}
RULES = ["global", "per_output"]
CONFIGS: dict[str, Any] = {
    "single": lambda rule, **more: pl.SingleConfig(
        retention=POWER, retention_compensation=rule, **PERFECT, **more
    ),
    "lrtt": lambda rule, **more: pl.LRTTConfig(
        rank=3, retention=POWER, retention_fast=noise_models.Exponential(tau=[3e4, 3e4]),
        retention_compensation=rule, **PERFECT, **more,
    ),
    "vector": lambda rule, **more: pl.VectorConfig(
        retention=POWER, retention_compensation=rule, **PERFECT, **more
    ),
}  # fmt: skip


def made(config: pl.TileConfig, **options: Any) -> pl.Tile:
    tile = pl.Tile(9, 12, config, seed=4, tile_id=2, **options)
    rng = np.random.default_rng(2)
    tile.weights = rng.uniform(-0.3, 0.3, (9, 12)).astype(np.float32)
    step(tile)
    return tile


def step(tile: pl.Tile) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((8, 12)).astype(np.float32)
    tile.update(x, rng.standard_normal((8, 9)).astype(np.float32), 0.05)


def factors(rule: str, before: NDArray[Any], now: NDArray[Any]) -> NDArray[Any]:
    """The factors of docs/reference/retention.md."""
    then, seen = (np.abs(w.astype(np.float64)).mean(axis=1) for w in (before, now))
    if rule == "global":
        return np.full(len(then), then.mean() / seen.mean())
    return then / seen


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("rule", RULES)
def test_factors_restore_the_mean_reading(kind: str, rule: str) -> None:
    tile, plain = made(CONFIGS[kind](rule)), made(CONFIGS[kind]("none"))
    before = tile.weights.copy()
    assert np.array_equal(before, plain.weights)
    assert tile.retention is not None
    assert plain.retention is not None
    for time in (60.0, 3e6):
        tile.retention.drift(time)
        plain.retention.drift(time)
        expected = factors(rule, before, plain.weights)
        assert np.abs(expected - 1).max() > 0.02
        np.testing.assert_allclose(tile.retention.compensation, expected, rtol=1e-5)
        np.testing.assert_allclose(
            tile.weights, expected[:, None] * plain.weights, rtol=1e-5, atol=1e-7
        )
        np.testing.assert_array_equal(plain.retention.compensation, 1.0)
    tile.retention.drift(0.0)
    np.testing.assert_array_equal(tile.retention.compensation, 1.0)
    np.testing.assert_array_equal(tile.weights, before)


@pytest.mark.parametrize("rule", RULES)
def test_reads_of_both_directions_have_the_factors(rule: str) -> None:
    tile = made(CONFIGS["single"](rule))
    assert tile.retention is not None
    tile.retention.drift(1e5)
    seen = tile.weights.astype(np.float64)
    rng = np.random.default_rng(5)
    x = rng.standard_normal((6, 12)).astype(np.float32)
    d = rng.standard_normal((6, 9)).astype(np.float32)
    np.testing.assert_allclose(tile.forward(x), x @ seen.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tile.backward(d), d @ seen, rtol=1e-4, atol=1e-5)


def test_gated_reads_of_an_adapter_have_the_factors() -> None:
    tile, plain = made(CONFIGS["lrtt"]("per_output")), made(CONFIGS["lrtt"]("none"))
    rng = np.random.default_rng(6)
    x = rng.standard_normal((6, 12)).astype(np.float32)
    d = rng.standard_normal((6, 9)).astype(np.float32)
    gate = rng.uniform(0.0, 1.0, (6, 3)).astype(np.float32)
    for each in (tile, plain):
        assert each.retention is not None
        each.retention.drift(1e5)
    assert tile.retention is not None
    assert tile.adapter is not None
    assert plain.adapter is not None
    alpha = tile.retention.compensation
    y, read = tile.adapter.forward(x, gate)
    expected, plain_read = plain.adapter.forward(x, gate)
    np.testing.assert_array_equal(read, plain_read)
    np.testing.assert_allclose(y, alpha * expected, rtol=1e-5, atol=1e-7)
    for found, wanted in zip(
        tile.adapter.backward(d, gate, read),
        plain.adapter.backward(alpha * d, gate, read),
        strict=True,
    ):
        np.testing.assert_array_equal(found, wanted)


def test_layers_of_several_tiles_and_copies_of_tiles_agree() -> None:
    torch = pytest.importorskip("torch")
    config = CONFIGS["single"]("global")
    layer = pl.nn.AnalogLinear(12, 9, config=config, seed=4, max_input_size=5)
    x = torch.randn(6, 12, generator=torch.Generator().manual_seed(2))
    pl.drift(layer, 1e5)
    weight = layer.tiles.get_weights()
    y = torch.nn.functional.linear(x, weight, layer.bias)
    torch.testing.assert_close(layer.eval()(x), y, rtol=1e-4, atol=1e-5)
    other = pl.nn.AnalogLinear(12, 9, config=config, seed=4, max_input_size=5)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.eval()(x), layer(x))


def test_without_spread_compensation_is_exact() -> None:
    config = CONFIGS["single"]("global").replace(retention=EXACT, retention_cell="pair")
    tile = made(config)
    before = tile.weights.copy()
    assert tile.retention is not None
    tile.retention.drift(1e6)
    np.testing.assert_allclose(tile.weights, before, rtol=1e-5, atol=1e-6)
    alpha = ((1e6 + EXACT.t_0) / EXACT.t_0) ** 0.05
    np.testing.assert_allclose(tile.retention.compensation, alpha, rtol=1e-5)


@pytest.mark.parametrize("kind", CONFIGS)
def test_times_may_come_in_any_order(kind: str) -> None:
    tile = made(CONFIGS[kind]("per_output"))
    assert tile.retention is not None
    tile.retention.drift(60.0)
    first = tile.retention.compensation, tile.weights.copy()
    tile.retention.drift(1e7, redraw=3)
    assert not np.array_equal(tile.retention.compensation, first[0])
    tile.retention.drift(60.0)
    np.testing.assert_array_equal(tile.retention.compensation, first[0])
    np.testing.assert_array_equal(tile.weights, first[1])


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("rule", RULES)
def test_training_at_an_age_keeps_the_factors_until_the_next_drift(kind: str, rule: str) -> None:
    tile, twin = made(CONFIGS[kind](rule)), made(CONFIGS[kind]("none"))
    for each in (tile, twin):
        assert each.retention is not None
        each.retention.drift(1e5)
    assert tile.retention is not None
    assert twin.retention is not None
    alpha = tile.retention.compensation.astype(np.float64)
    step(tile)
    step(twin)
    np.testing.assert_array_equal(tile.retention.compensation, alpha.astype(np.float32))
    trained = alpha[:, None] * twin.weights  # pulses did not see the factors
    np.testing.assert_allclose(tile.weights, trained, rtol=1e-5, atol=1e-7)
    tile.retention.drift(1e6)
    twin.retention.drift(1e6)
    np.testing.assert_allclose(
        tile.retention.compensation, factors(rule, trained, twin.weights), rtol=1e-5
    )


def test_written_weights_have_no_factors() -> None:
    tile = made(CONFIGS["single"]("global"))
    assert tile.retention is not None
    tile.retention.drift(1e5)
    plain = made(CONFIGS["single"]("none"))
    for each in (tile, plain):
        each.weights = np.full((9, 12), 0.01, np.float32)
    np.testing.assert_array_equal(tile.retention.compensation, 1.0)
    np.testing.assert_array_equal(tile.weights, plain.weights)


@pytest.mark.parametrize("kind", CONFIGS)
def test_states_hold_factors_and_what_they_restore(kind: str) -> None:
    tile = made(CONFIGS[kind]("per_output"))
    assert tile.retention is not None
    tile.retention.drift(1e5)
    step(tile)
    other = pl.Tile.from_state(tile.state())
    assert other.retention is not None
    for _ in range(2):
        np.testing.assert_array_equal(other.retention.compensation, tile.retention.compensation)
        np.testing.assert_array_equal(other.weights, tile.weights)
        tile.retention.drift(1e6)
        other.retention.drift(1e6)
    io = pl.IOParameters(out_noise=0.1)
    np.testing.assert_array_equal(tile.with_io(forward=io).weights, tile.weights)


def test_age_0_has_the_bits_of_a_tile_without_compensation() -> None:
    config = pl.LRTTConfig(rank=3, retention=POWER)
    x = np.random.default_rng(7).standard_normal((5, 12)).astype(np.float32)
    tiles = [made(config), made(config.replace(retention_compensation="per_output"))]
    np.testing.assert_array_equal(tiles[0].forward(x), tiles[1].forward(x))
    np.testing.assert_array_equal(tiles[0].weights, tiles[1].weights)


def test_a_network_that_drifts_is_held_by_compensation() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(16, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
    errors = {}
    for rule in ("none", "global"):
        config = pl.SingleConfig(retention=EXACT, retention_compensation=rule, **PERFECT)
        model = pl.convert_to_analog(net, config, seed=1).eval()
        with torch.no_grad():
            y = model(x)
            pl.drift(model, "1 year")
            errors[rule] = float((model(x) - y).norm() / y.norm())
    assert errors["global"] < 1e-4
    assert errors["none"] > 0.3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"retention_compensation": "global"},
            "is 'global', but SingleConfig.retention is None, so that nothing drifts; give a noise",
        ),
        ({"retention": POWER, "retention_compensation": "affine"}, "retention_compensation"),
    ],
)
def test_a_bad_configuration_names_the_remedy(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(pl.ConfigError) as refusal:
        pl.SingleConfig(**settings)
    assert message in str(refusal.value)


def test_a_refused_age_changes_no_factor() -> None:
    config = CONFIGS["single"]("global").replace(retention=noise_models.ReRamWan2022())
    tile = made(config)
    assert tile.retention is not None
    tile.retention.drift(60.0)
    step(tile)
    before = pl.state.dumps(tile.state())
    with pytest.raises(pl.ConfigError, match="has numbers up to"):
        tile.retention.drift(1e9)
    assert pl.state.dumps(tile.state()) == before
