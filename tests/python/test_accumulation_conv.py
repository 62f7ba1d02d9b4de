"""Accumulated passes of convolutions keep images, and train with the bits of kept patches."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pulsora as pl
from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.nn.tiles.patches import Patches, PatchSettings, take_patches

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE = "cuda" if torch.cuda.is_available() and pl.cuda_device_count() > 0 else "cpu"
LRTT = pl.LRTTConfig(rank=2, transfer_every=2)
MERGED = pl.SingleConfig(device=pl.devices.ConstantStep(noise_merge="batch"))
LAYERS: dict[str, Callable[[], pl.nn.AnalogConvNd]] = {
    "1D": lambda: pl.nn.AnalogConv1d(4, 6, 5, padding=2, seed=1),
    "2D": lambda: pl.nn.AnalogConv2d(4, 6, 3, dilation=2, seed=1),
    "3D": lambda: pl.nn.AnalogConv3d(4, 6, 2, seed=1),
    "groups": lambda: pl.nn.AnalogConv2d(4, 6, 3, groups=2, padding=1, seed=1),
    "bias in cells": lambda: pl.nn.AnalogConv2d(4, 6, 3, digital_bias=False, seed=1),
    "groups, bias in cells": lambda: pl.nn.AnalogConv2d(
        4, 6, 3, groups=2, digital_bias=False, seed=1
    ),
    "several tiles": lambda: pl.nn.AnalogConv2d(
        4, 6, 3, max_input_size=10, max_output_size=4, seed=1
    ),
    "an adapter": lambda: pl.nn.AnalogConv2d(4, 6, 3, config=LRTT, seed=1),
    "scaled": lambda: pl.nn.AnalogConv2d(4, 6, 3, weight_scaling=0.5, seed=1),
    "ideal": lambda: pl.nn.AnalogConv2d(4, 6, 3, config=pl.IdealConfig(), seed=1),
    "noise of a batch": lambda: pl.nn.AnalogConv2d(4, 6, 3, config=MERGED, seed=1),
    "no patches twice": lambda: pl.nn.AnalogConv2d(4, 6, 2, stride=2, seed=1),
}


def images(layer: pl.nn.AnalogConvNd, seed: int, count: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    sizes = (9, 8, 7)[: len(layer.kernel_size)]
    return torch.randn(count, 4, *sizes, generator=generator).to(DEVICE)


def keeping(layer: nn.Module) -> list[bool]:
    """Whether each pair of a gradient has images."""
    gradient = layer.analog_weight.grad
    return [isinstance(pair.x, Patches) for pair in gradient.pairs]


def keep_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnalogParameter, "keeps_images", lambda *_: False)


def trained(
    make: Callable[[], pl.nn.AnalogConvNd],
    passes: int = 3,
    between: Callable[[Any], object] | None = None,
) -> tuple[pl.nn.AnalogConvNd, list[bool], torch.Tensor]:
    """A layer after two steps of several passes each, what it kept, and the formed gradient."""
    layer = make().to(DEVICE)
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.1)
    for step in range(2):
        for i in range(passes):
            x = images(layer, 10 * step + i)
            layer(x).square().mean().backward()
            x.fill_(float("nan"))  # the caller's memory
        kept = keeping(layer)
        formed = layer.analog_weight.grad.dense()
        if between is not None:
            between(layer)
        optimizer.step()
    return layer, kept, formed


@pytest.mark.parametrize("name", LAYERS)
def test_images_train_to_the_bits_of_patches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, kept, formed = trained(LAYERS[name])
    assert kept == [False, *[name != "no patches twice"] * 2]
    keep_patches(monkeypatch)
    other, kept, expected = trained(LAYERS[name])
    assert kept == [False] * 3
    assert torch.equal(formed, expected)
    ours, theirs = layer.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[each], theirs[each]) for each in theirs)


@pytest.mark.parametrize("size", [4, 40])
def test_passes_of_any_size_are_concatenated_alike(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbouring passes of up to 2^20 numbers are one update, which matters for merged noise."""

    def make() -> pl.nn.AnalogConvNd:
        return pl.nn.AnalogConv2d(4, 6, 3, config=MERGED, seed=1)

    def state() -> dict[str, torch.Tensor]:
        layer = make().to(DEVICE)
        optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.1)
        for i, count in enumerate((2, 3, 3, 2)):
            x = torch.randn(4 * count, 4, size, size + i // 3, device=DEVICE)
            layer(x).square().mean().backward()
        optimizer.step()
        return layer.state_dict()

    torch.manual_seed(0)
    ours = state()
    keep_patches(monkeypatch)
    torch.manual_seed(0)
    theirs = state()
    assert all(torch.equal(ours[each], theirs[each]) for each in theirs)


class Gated(pl.nn.AnalogConv2d):
    """A convolution whose adapters have a gate for each patch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.gate = torch.linspace(-1.0, 1.0, 2, device=x.device, requires_grad=True)
        product = self.product
        self.product = lambda rows, patches=None: product(rows, self.gate, patches=patches)
        try:
            return super().forward(x)
        finally:
            del self.product


def test_gated_reads_train_to_the_bits_of_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> pl.nn.AnalogConvNd:
        return Gated(4, 6, 3, config=LRTT, seed=1)

    layer, kept, _ = trained(make)
    assert kept == [False, True, True]
    keep_patches(monkeypatch)
    other, _, _ = trained(make)
    ours, theirs = layer.state_dict(), other.state_dict()
    assert all(torch.equal(ours[each], theirs[each]) for each in theirs)
    assert torch.equal(layer.gate.grad, other.gate.grad)


CHANGES: dict[str, Callable[[Any], object]] = {
    "clipped": lambda layer: nn.utils.clip_grad_norm_(layer.parameters(), 0.1),
    "scaled": lambda layer: layer.analog_weight.grad.mul_(0.5),
    "moved": lambda layer: layer.to("cpu").to(DEVICE),
    "unscaled": lambda layer: torch._amp_foreach_non_finite_check_and_unscale_(
        [layer.analog_weight.grad],
        torch.zeros(1, device=DEVICE),
        torch.full((1,), 0.5, device=DEVICE),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_gradients_of_images_are_changed_as_others(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, _, _ = trained(LAYERS["groups"], between=CHANGES[change])
    keep_patches(monkeypatch)
    other, _, _ = trained(LAYERS["groups"], between=CHANGES[change])
    ours, theirs = layer.state_dict(), other.state_dict()
    assert all(torch.equal(ours[each], theirs[each]) for each in theirs)


def test_one_pass_keeps_patches_and_a_large_one_images(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = LAYERS["2D"]().to(DEVICE)
    layer(images(layer, 0)).sum().backward()
    assert keeping(layer) == [False]
    layer.zero_grad()
    monkeypatch.setattr("pulsora.nn.autograd.analog_parameter._MOST_PATCHES", 1000)
    layer(images(layer, 0)).sum().backward()
    assert keeping(layer) == [True]


def test_the_images_take_a_fraction_of_the_memory() -> None:
    layer = pl.nn.AnalogConv2d(4, 2, 3, config=pl.IdealConfig(), seed=1)
    for i in range(8):
        layer(torch.randn(8, 4, 20, 20)).sum().backward()
        if i == 0:
            one = layer.analog_weight.grad.factors.bytes
    d = 8 * 2 * 18 * 18
    assert one == 4 * (d + 8 * 18 * 18 * 36)
    assert layer.analog_weight.grad.factors.bytes == one + 7 * 4 * (d + 8 * 4 * 20 * 20)


def test_a_checkpointed_convolution_accumulates(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(checkpointed: bool) -> dict[str, torch.Tensor]:
        model = nn.Sequential(
            pl.nn.AnalogConv2d(4, 6, 3, seed=1), nn.ReLU(), pl.nn.AnalogConv2d(6, 4, 3, seed=2)
        ).to(DEVICE)
        optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
        losses = []
        for i in range(3):
            x = images(model[0], i).requires_grad_()
            y = (
                checkpoint(model, x, use_reentrant=False, context_fn=pl.nn.replayed_reads)
                if checkpointed
                else model(x)
            )
            losses.append(y.square().mean())
        for loss in losses:  # the first has made gradients when others run again
            loss.backward()
        optimizer.step()
        return model.state_dict()

    ours = state(checkpointed=True)
    keep_patches(monkeypatch)
    theirs = state(checkpointed=False)
    assert all(torch.equal(ours[each], theirs[each]) for each in theirs)


def test_refusals_see_the_patches() -> None:
    layer = pl.nn.AnalogConv2d(1, 1, 2, stride=3, bias=False, config=pl.IdealConfig(), seed=1)
    layer = layer.to(DEVICE)
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.1)
    before = layer.get_weights()[0].clone()
    x = torch.ones(2, 1, 5, 5, device=DEVICE)
    settings = PatchSettings((2, 2), (3, 3), (1, 1))
    x[:, :, 2] = torch.nan  # between the patches
    d = torch.ones(8, 1, device=DEVICE)
    layer.analog_weight.grad = layer.analog_weight.gradient(Patches(x, settings), d)
    optimizer.step()
    changed = layer.get_weights()[0]
    torch.testing.assert_close(changed, before - 0.1 * 8)
    if DEVICE == "cpu":  # a GPU does not wait for refusals
        for bad, message in ((torch.nan, r"x\[\d, 0\] is nan"), (3e38, "beyond single precision")):
            x[1, 0, 0, 0] = bad
            layer.analog_weight.grad = layer.analog_weight.gradient(Patches(x, settings), 1e2 * d)
            with pytest.raises(pl.InputError, match=message):
                optimizer.step()
            assert torch.equal(layer.get_weights()[0], changed)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("has_ones", [False, True])
def test_the_core_takes_the_patches_of_torch(groups: int, has_ones: bool) -> None:
    """An ideal update by d = 1 in one row adds up all patches."""
    x = torch.randn(3, 4, 6, 7, device=DEVICE)
    settings = PatchSettings((3, 2), (2, 1), (1, 2))
    patches = Patches(x, settings, groups, has_ones)
    rows = functional_patches(x, settings)
    assert torch.equal(take_patches(x, settings), rows)
    matrix = patches.matrix()
    assert tuple(matrix.shape) == patches.shape
    blocks = rows.flatten(0, 1).reshape(len(matrix), groups, -1)
    if has_ones:
        blocks = torch.cat([blocks, torch.ones(len(matrix), groups, 1, device=DEVICE)], 2)
    assert torch.equal(matrix, blocks.flatten(1))


def functional_patches(x: torch.Tensor, settings: PatchSettings) -> torch.Tensor:
    kernel, stride, dilation = settings
    return nn.functional.unfold(x, kernel, dilation, 0, stride).transpose(1, 2)


def test_nothing_keeps_images_after_a_step() -> None:
    layer, _, _ = trained(LAYERS["2D"])
    gc.collect()
    assert layer.analog_weight.grad is None
    assert not [each for each in gc.get_objects() if type(each) is Patches]
