"""Outputs of a layer and of what takes its place, compared on a few random inputs."""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora.convert.report import analog_parts, is_conv1d
from pulsora.nn import AnalogModule
from pulsora.nn.tiles.tile_factors import tile_factors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from pulsora.tile import Tile

__all__ = [
    "distance",
    "holding",
    "is_readable",
    "like",
    "numbers",
    "perfect_reads",
    "random_inputs",
    "share",
]

_ROWS = 8
_IMAGES = 2
_STEPS = 3


def is_readable(layer: nn.Module) -> bool:
    """Whether `perfect_reads` reaches all analog parts of a layer."""
    return all(type(part).product is AnalogModule.product for part in analog_parts(layer))


@contextmanager
def perfect_reads(*layers: nn.Module) -> Iterator[None]:
    """Makes the analog layers inside of layers compute what perfect reads of their tiles give.

    Nothing of the tiles changes, counters included. Dropout is off. A class with a product of its
    own keeps it.
    """
    parts = dict.fromkeys(part for layer in layers for part in layer.modules())
    modes = [(part, part.training) for part in parts]
    analog = [
        part
        for part in parts
        if isinstance(part, AnalogModule) and type(part).product is AnalogModule.product
    ]
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_exact_products())
        try:
            for each in analog:
                vars(each)["product"] = functools.partial(_product, each)
            for layer in layers:
                layer.eval()
            yield
        finally:
            for each in analog:
                del vars(each)["product"]
            for part, mode in modes:
                part.training = mode


@contextmanager
def _exact_products() -> Iterator[None]:
    """Switches off what shortens the numbers of products: autocast and the types of TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _product(
    layer: AnalogModule,
    x: Tensor,
    gate: Tensor | None = None,
    steps: int = 1,  # noqa: ARG001 - as AnalogModule.product
    bias: Tensor | None = None,
    *,
    patches: object = None,  # noqa: ARG001 - as AnalogModule.product
) -> Tensor:
    """Returns W x + bias as `AnalogModule.product`, from the numbers in the tiles.

    A weight that is a parameter of torch is taken as it is, not as its tiles would read it, unless
    cells follow it.
    """
    tiles = layer.tiles
    own = layer.held is not None and not tiles.facts.follows
    held = layer._read_matrix() if own else None  # noqa: SLF001
    flat = x.reshape(-1, x.shape[-1]).double()
    if layer.analog_bias:
        blocks = flat.reshape(-1, tiles.groups, tiles.shape[1] - 1)
        flat = nn.functional.pad(blocks, (0, 1), value=1.0).flatten(1)
    y = flat.new_zeros(len(flat), tiles.shape[0])
    codes = None if gate is None else torch.as_tensor(gate).to(flat)
    for number, (row, col, tile) in enumerate(tiles.parts()):
        lines = flat[:, tiles.lines(number // len(tiles.cols), col)]
        weights = _numbers_of(tile) if held is None else held[row, col]
        y[:, row] += lines @ weights.to(flat).T
        if codes is not None:
            a, b, alpha = tile_factors(tile)
            h = (lines @ b.to(flat).T).reshape(*x.shape[:-1], -1)
            change = ((codes - 1.0) * h).flatten(0, -2) @ a.to(flat).T
            y[:, row] += alpha * change
    for scale in (tiles.scales, layer.out_scaling):
        y = y if scale is None else y * scale
    added = layer.bias if bias is None else bias
    y = y if added is None else y + added
    return y.to(x.dtype).reshape(*x.shape[:-1], -1)


def _numbers_of(tile: Tile) -> Tensor:
    """Returns the weights of a tile without copying them once more."""
    return torch.from_numpy(tile._core.get_weights())  # noqa: SLF001 - not read-only


def share(dtype: torch.dtype) -> float:
    """Returns the relative error that rounding may make in numbers of a type."""
    eps = torch.finfo(dtype).eps
    return 4.0 * eps if eps > 1e-6 else 64.0 * torch.finfo(torch.float32).eps


def like(layer: nn.Module, x: Tensor) -> Tensor:
    """Returns x on the device and in the type of a layer."""
    part = next(analog_parts(layer), None)
    if part is not None:
        return x.to(part.tiles.device, part.digital_dtype)
    held = [*layer.parameters(), *layer.buffers()]
    kinds = [each.dtype for each in held if each.is_floating_point() or each.is_complex()]
    return x.to(held[0].device if held else x.device, kinds[0] if kinds else x.dtype)


def random_inputs(layer: Any) -> Tensor | None:  # noqa: ANN401 - of several kinds
    """Returns standard normal inputs of a layer of torch or its twin, the same at each call.

    They are 8 rows, 2 images of a little more than the kernel, or 2 sequences of 3 steps; None for
    layers of other kinds.
    """
    sizes: tuple[int, ...]
    if is_conv1d(layer):
        sizes = (_ROWS, int(layer.weight.shape[0]))
    elif isinstance(getattr(layer, "in_features", None), int):
        sizes = (_ROWS, layer.in_features)
    elif all(hasattr(layer, name) for name in ("in_channels", "kernel_size", "dilation")):
        padding = layer.padding if isinstance(layer.padding, tuple) else (0,)
        windows = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
        images = [max(d * (k - 1) + 1 + s, max(padding) + 1) for k, s, d in windows]
        sizes = (_IMAGES, layer.in_channels, *images)
    elif all(hasattr(layer, name) for name in ("input_size", "batch_first")):
        first = (_IMAGES, _STEPS) if layer.batch_first else (_STEPS, _IMAGES)
        sizes = (*first, layer.input_size)
    else:
        return None
    return torch.randn(sizes, generator=torch.Generator().manual_seed(5), device="cpu")


@contextmanager
def holding(layer: nn.Module, weights: dict[str, Tensor]) -> Iterator[None]:
    """Gives parameters of a layer other values for a while."""
    before = {name: layer.get_parameter(name).data for name in weights}
    try:
        for name, values in weights.items():
            own = layer.get_parameter(name)
            own.data = values.reshape(own.shape).to(own)
        yield
    finally:
        for name, values in before.items():
            layer.get_parameter(name).data = values


def distance(before: Tensor, after: Tensor) -> float:
    """Returns the norm of what numbers of outputs change by; infinite for another shape."""
    return float((after - before).norm()) if before.shape == after.shape else float("inf")


def numbers(outputs: object) -> Tensor:
    """Returns all numbers of a tensor, or of nested tuples of tensors, in one line."""
    if isinstance(outputs, torch.Tensor):
        flat = outputs.detach().flatten().cpu()
        return torch.view_as_real(flat).flatten().double() if flat.is_complex() else flat.double()
    if isinstance(outputs, tuple | list):
        return torch.cat([numbers(each) for each in outputs])
    raise TypeError(f"{type(outputs).__name__} is no tensor")
