"""Analog convolutions beside torch's: dimensions, groups, paddings, strides, dilations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import pulsora as pl
from pulsora.nn import AnalogConv1d, AnalogConv2d, AnalogConv3d, AnalogConvNd
from pulsora.nn.conv import _images, _rows
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable

IDEAL = pl.IdealConfig(
    forward=pl.IOParameters(is_perfect=True), backward=pl.IOParameters(is_perfect=True)
)
DIGITAL: list[type[nn.Module]] = [nn.Conv1d, nn.Conv2d, nn.Conv3d]
DEVICE = "cuda" if torch.cuda.is_available() and pl.cuda_device_count() > 0 else "cpu"

PADDINGS: list[dict[str, Any]] = [
    {},
    {"padding": "valid"},
    {"padding": "same"},
    {"padding": "same", "padding_mode": "circular", "dilation": 2},
    {"padding": 2},
    *({"padding": 1, "padding_mode": mode} for mode in ("reflect", "replicate", "circular")),
]


@pytest.fixture(autouse=True)
def _single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own layers on a GPU round to 10 bits otherwise."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def same_training(digital: nn.Module, x: torch.Tensor, **options: Any) -> None:
    """Outputs, gradients and two steps of training of a layer and its analog twin agree."""
    digital = digital.to(DEVICE)
    analog = pl.convert_to_analog(nn.Sequential(digital), IDEAL, **options)
    for model, make in ((digital, torch.optim.SGD), (analog, AnalogSGD)):
        optimizer = make(model.parameters(), lr=0.01)
        results: list[torch.Tensor] = []
        for _ in range(2):
            optimizer.zero_grad()
            given = x.clone().to(DEVICE).requires_grad_()
            y = model(given)
            y.square().sum().backward()
            optimizer.step()
            results += [y.detach(), given.grad]
        if model is digital:
            expected = results
    for ours, theirs in zip(results, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    back = pl.convert_to_digital(analog)[0]
    assert type(back) is type(digital)
    for name, theirs in digital.state_dict().items():
        torch.testing.assert_close(back.state_dict()[name], theirs, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(back(x.to(DEVICE)), digital(x.to(DEVICE)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("setting", range(len(PADDINGS)))
def test_a_convolution_trains_as_that_of_torch(dimensions: int, groups: int, setting: int) -> None:
    torch.manual_seed(0)
    options = PADDINGS[setting]
    stride = 1 if options.get("padding") == "same" else 2
    digital = DIGITAL[dimensions - 1](4, 8, 3, stride=stride, groups=groups, **options)
    x = torch.randn(2, 4, *(7, 6, 5)[:dimensions])
    same_training(digital, x, max_input_size=7, max_output_size=3, digital_bias=setting % 2 == 0)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_every_dimension_has_settings_of_its_own() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 2, 7, 8, 9)
    options: dict[str, Any] = {"stride": (1, 2, 3), "padding": (2, 0, 1), "dilation": (2, 1, 3)}
    same_training(nn.Conv3d(2, 3, (3, 2, 1), **options), x)
    options = {name: value[:2] for name, value in options.items()}
    same_training(nn.Conv2d(2, 3, (3, 2), padding_mode="replicate", **options), x[..., 0])
    same_training(nn.Conv1d(2, 3, 4, padding="same", dilation=3), x[..., 0, 0])


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_one_image_needs_no_batch(dimensions: int) -> None:
    digital = DIGITAL[dimensions - 1](2, 3, 2)
    same_training(digital, torch.randn(2, *(4, 3, 5)[:dimensions]))


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_images_lie_in_memory_as_those_of_torch(dimensions: int) -> None:
    """So that view(len(x), -1), which many networks have behind their convolutions, works."""
    kinds = ((nn.Conv1d, AnalogConv1d), (nn.Conv2d, AnalogConv2d), (nn.Conv3d, AnalogConv3d))
    digital, analog = kinds[dimensions - 1]
    x = torch.randn(2, 4, *[5] * dimensions)
    y = analog(4, 6, 3, config=IDEAL)(x)
    assert y.stride() == digital(4, 6, 3)(x).stride()
    assert y.view(len(x), -1).shape == (2, 6 * 3**dimensions)
    if dimensions == 2:
        last = x.contiguous(memory_format=torch.channels_last)
        given = analog(4, 6, 3, config=IDEAL)(last)
        assert given.is_contiguous(memory_format=torch.channels_last)


def test_each_group_has_tiles_of_its_own() -> None:
    layer = AnalogConv2d(6, 4, 3, config=pl.SingleConfig(), groups=2, seed=1, max_input_size=14)
    assert [(tile.d_size, tile.x_size) for tile in layer.tiles] == [(2, 13), (2, 14)] * 2
    assert [tile.tile_id for tile in layer.tiles] == list(range(4))
    assert layer.weight.shape == layer.analog_weight.shape == (4, 27)
    other = AnalogConv2d(6, 4, 3, config=pl.SingleConfig(), groups=2, seed=2, max_input_size=14)
    other.load_state_dict(layer.state_dict())
    x = torch.randn(2, 6, 5, 5)
    for each in (layer, other):
        optimizer = AnalogSGD(each.parameters(), lr=0.1)
        each(x).square().sum().backward()
        optimizer.step()
    assert torch.equal(layer.weight, other.weight)


def test_the_gradient_of_groups_has_the_shape_of_the_weights() -> None:
    digital = nn.Conv2d(4, 6, 3, groups=2)
    analog = pl.convert_to_analog(digital, IDEAL)
    assert isinstance(analog, AnalogConv2d)
    norms = []
    for layer in (digital, analog):
        layer(torch.ones(2, 4, 5, 5)).square().sum().backward()
        norms.append(nn.utils.clip_grad_norm_(layer.parameters(), 0.1))
    torch.testing.assert_close(norms[0], norms[1])
    assert digital.weight.grad is not None
    gradient = analog.analog_weight.grad
    torch.testing.assert_close(gradient.dense(), digital.weight.grad.flatten(1))


@pytest.mark.parametrize("analog", [AnalogConv1d, AnalogConv2d, AnalogConv3d])
@pytest.mark.parametrize(
    ("channels", "options"),
    [
        ((4, 4), {"groups": 3}),
        ((3, 4), {"groups": 2}),
        ((4, 6), {"groups": 4}),
        ((4, 4), {"groups": 0}),
        ((4, 4), {"padding": "full"}),
        ((4, 4), {"padding": "same", "stride": 2}),
        ((4, 4), {"padding_mode": "mirror"}),
    ],
)
def test_settings_that_torch_refuses_are_refused_in_its_words(
    analog: type[AnalogConvNd], channels: tuple[int, int], options: dict[str, Any]
) -> None:
    dimensions = [AnalogConv1d, AnalogConv2d, AnalogConv3d].index(analog)
    with pytest.raises(ValueError) as theirs:  # noqa: PT011 - its words are compared
        DIGITAL[dimensions](*channels, 3, **options)
    with pytest.raises(ValueError) as ours:  # noqa: PT011
        analog(*channels, 3, **options)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AnalogConv1d(2, 2, 0), "kernel_size = 0: give one whole number, or 1, from 1 up"),
        (lambda: AnalogConv2d(2, 2, 3, stride=0), "stride = 0: .*, or 2, from 1 up"),
        (lambda: AnalogConv2d(2, 2, 3, padding=(0, -1)), r"padding = \(0, -1\): .* from 0 up"),
        (lambda: AnalogConv3d(2, 2, (3, 3)), r"kernel_size = \(3, 3\): .*, or 3, from 1 up"),
        (lambda: AnalogConv2d(2, 2, 3, dilation=(1, 2, 3)), r"dilation = \(1, 2, 3\): .*, or 2,"),
    ],
)
def test_sizes_out_of_range_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_sizes_are_whole_numbers() -> None:
    with pytest.raises(TypeError, match=r"kernel_size = 3\.0: give whole numbers"):
        AnalogConv2d(2, 2, 3.0)


def test_images_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[1, 4\]: give \[m, 2, width\] or \[2, width\]"):
        AnalogConv1d(2, 2, 3)(torch.ones(1, 4))
    with pytest.raises(ValueError, match="smaller than the kernels"):
        AnalogConv1d(2, 2, 3)(torch.ones(1, 2, 2))
    with pytest.raises(ValueError, match=r"\[m, 2, depth, height, width\]"):
        AnalogConv3d(2, 2, 3)(torch.ones(1, 2, 2, 2))
    with pytest.raises(TypeError, match="make an AnalogConv2d"):
        AnalogConvNd(2, 2, 3)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"),
    [((5, 5), (1, 1), (1, 1)), ((3, 2), (2, 1), (1, 2)), ((1, 4), (1, 3), (1, 1))],
)
def test_patches_and_their_gradients_have_the_bits_of_unfold(
    kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> None:
    torch.manual_seed(3)
    x = torch.randn(4, 3, 11, 13).transpose(2, 3).requires_grad_()  # of another layout
    expected = functional.unfold(x, kernel, dilation, 0, stride).transpose(1, 2)
    images, settings = _images(x, kernel, stride, dilation)
    patches = _rows(images, settings, len(x), is_temporary=False)
    assert torch.equal(patches, expected)
    d = torch.randn_like(patches)
    assert torch.equal(
        *(torch.autograd.grad(each, x, d, retain_graph=True)[0] for each in (patches, expected))
    )
