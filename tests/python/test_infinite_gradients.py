"""Backward passes with gradients that are not finite, as a GradScaler makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pulsora as pl
from conftest import DEVICES
from training_step_models import batch_of, model_of

CONFIGS: dict[str, Any] = {
    "plain": pl.SingleConfig(),
    "floats": pl.SingleConfig(backward=pl.IOParameters(weight_bits=32)),
    "no scale": pl.SingleConfig(backward=pl.IOParameters(noise_management="none")),
    "mean scale": pl.SingleConfig(backward=pl.IOParameters(noise_management="average_abs_max")),
    "worst case": pl.SingleConfig(
        backward=pl.IOParameters(bound_management="iterative_worst_case")
    ),
    "adapter": pl.LRTTConfig(rank=3, transfer_every=2),
    "chain": pl.TTv2(pl.devices.SoftBounds()),
    "wires": pl.SingleConfig(backward=pl.IOParameters(ir_drop=0.5)),
}
BAD = (1, 4)


def spoilt(d: np.ndarray, value: float) -> np.ndarray:
    """Rows BAD with one value that is not finite, each in a place of its own."""
    d = d.copy()
    for number, row in enumerate(BAD):
        d[row, 3 * number] = value
    return d


def host(read: Any) -> np.ndarray:  # noqa: ANN401
    """A result in host memory."""
    return torch.from_dlpack(read).cpu().numpy()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [(8, 6), (150, 70)])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", CONFIGS)
def test_rows_that_are_not_finite_have_no_result_and_leave_the_others(
    name: str, value: float, sizes: tuple[int, int], device: str
) -> None:
    """Other rows, and what follows, are as if these rows had been zeros."""
    rng = np.random.default_rng(1)
    rows, columns = sizes
    d = rng.uniform(-1.0, 1.0, (7, rows)).astype(np.float32)
    x = rng.uniform(-1.0, 1.0, (7, columns)).astype(np.float32)
    weights = rng.uniform(-0.3, 0.3, sizes)
    zeros = d.copy()
    zeros[list(BAD)] = 0.0
    found = []
    for lines in (spoilt(d, value), zeros):
        tile = pl.Tile(rows, columns, CONFIGS[name], seed=5, device=device)
        tile.weights = weights
        on = [torch.from_numpy(each).to(device) for each in (lines, d, x, zeros)]
        read = host(tile.backward(on[0], takes_infinite=True))
        again = host(tile.backward(on[1]))
        tile.update(*on[2:], 0.1)
        found.append((read, again, tile.weights))
    kept = [row for row in range(len(d)) if row not in BAD]
    assert np.isnan(found[0][0][list(BAD)]).all()
    for one, other in zip(found[0][:2], found[1][:2], strict=True):
        np.testing.assert_array_equal(one[kept], other[kept])
    np.testing.assert_array_equal(found[0][2], found[1][2])


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_are_not_finite_are_errors_otherwise(device: str) -> None:
    tile = pl.Tile(8, 6, pl.SingleConfig(), seed=5, device=device)
    d = torch.full((2, 8), torch.inf, device=device)
    with pytest.raises(pl.InputError, match=r"not finite|must be finite"):
        _ = tile.backward(d), tile.weights  # a GPU tells at the next call that waits


@pytest.mark.parametrize("device", DEVICES)
def test_a_layer_of_many_tiles_takes_them_too(device: str) -> None:
    layer = pl.nn.AnalogLinear(
        12, 9, bias=False, seed=1, max_input_size=5, max_output_size=4, device=device
    )
    x = batch_of(0, device)[0].requires_grad_()
    y = layer(x)
    d = torch.ones_like(y)
    d[2, 8] = torch.inf  # in the last row of tiles
    y.backward(d)
    assert x.grad is not None
    assert x.grad[2].isnan().all()
    assert x.grad[[0, 1, *range(3, 10)]].isfinite().all()
    assert layer.get_weights()[0].isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
def test_training_goes_on_after_a_step_that_a_scaler_left_out(device: str) -> None:
    """Torch's loop: layers with pulses learn as if the step had not been."""
    changes = []
    for factors in ((1.0, torch.inf, 1.0), (1.0, 1.0)):
        model = model_of(device, pl.SingleConfig(forward=pl.IOParameters(is_perfect=True)))
        model[1].eval()
        optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device, init_scale=4.0)
        for number, factor in enumerate(factors):
            optimizer.zero_grad()
            y = model(batch_of(min(number, 1) if factor == 1.0 else 7, device)[0])
            scaler.scale(y.square().mean() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        changes.append([each.get_weights()[0] for each in (model[0], model[3])])
        assert scaler.get_scale() == 4.0 / 2 ** (len(factors) - 2)
    before = model_of(device, pl.SingleConfig(forward=pl.IOParameters(is_perfect=True)))
    for place, one, other in zip((0, 3), *changes, strict=True):
        assert not torch.equal(one, before[place].get_weights()[0])
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.05)  # with other noise


@pytest.mark.parametrize("config", [pl.MixedPrecisionConfig(), pl.InferenceConfig()])
def test_torch_s_weights_get_no_infinite_gradients_outside_float16(config: pl.TileConfig) -> None:
    model = model_of("cpu", config)
    y = model(batch_of(0, "cpu")[0])
    with pytest.raises(pl.InputError, match="every value must be finite"):
        y.backward(torch.full_like(y, torch.inf))


@pytest.mark.parametrize("config", [pl.SingleConfig(), pl.InferenceConfig()])
def test_infinite_gradients_in_float16_pass_frozen_layers(config: pl.TileConfig) -> None:
    """So that a scaler finds them in the layers before."""
    frozen = pl.nn.AnalogLinear(6, 8, config=config, seed=1)
    frozen.requires_grad_(requires_grad=False)
    x = torch.ones(2, 6, requires_grad=True)
    with torch.autocast("cpu", torch.float16):
        y = frozen(x)
    y.backward(torch.full_like(y, torch.inf))
    assert x.grad is not None
    assert not x.grad.isfinite().any()
    y = frozen(x)
    with pytest.raises(pl.InputError, match="every value must be finite"):
        y.backward(torch.full_like(y, torch.inf))
