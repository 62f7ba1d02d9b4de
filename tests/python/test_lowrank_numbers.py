"""Known numbers of low-rank updates: worked examples, finite differences, edges of tiles."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch

import pulsora as pl
from pulsora import lowrank
from test_lowrank import DEVICES, TOLERANCE, TYPES, doubles, error, formula, operands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.parametrize("device", DEVICES)


def test_property_45_46_worked_examples_are_exact(device: str) -> None:
    x, v, codes, u, dy = (
        torch.tensor(rows, dtype=torch.float32, device=device)
        for rows in (
            [[1, 2], [3, -1]], [[2, 0], [1, 1]], [[1, 2], [0, -1]], [[1, 3], [-2, 1]],
            [[1, 0], [2, -1]],
        )
    )  # fmt: skip
    for part in (x, v, codes, u):
        part.requires_grad_()
    for dtype in TYPES:
        given = [part.to(dtype) for part in (x, v, codes, u)]
        y = lowrank.gated_low_rank(*given, u_layout="kn", scale=2.0)
        # x v = [[4, 2], [5, -1]], gated [[4, 4], [0, 1]]; dy u = [[1, 3], [4, 5]], gated [[1, 6],
        # [0, -5]].
        assert y.tolist() == [[32.0, -8.0], [6.0, 2.0]]
        made = torch.autograd.grad(y, (x, v, codes, u), dy.to(dtype))
        assert [gradient.tolist() for gradient in made] == [
            [[4.0, 14.0], [0.0, -10.0]], [[2.0, -18.0], [4.0, 34.0]], [[8.0, 12.0], [40.0, -10.0]],
            [[8.0, 12.0], [0.0, -2.0]],
        ]  # fmt: skip


def finite_differences(
    of: Callable[..., torch.Tensor], parts: dict[str, torch.Tensor], dy: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Gradients of (of(**parts) * dy).sum() by central differences in float64, exact if linear."""
    exact = {name: part.detach().double() for name, part in parts.items()}
    step = 1e-4
    made = {}
    for name, part in exact.items():
        differences = torch.zeros_like(part)
        for index in range(part.numel()):
            sides = []
            for sign in (1.0, -1.0):
                moved = part.clone()
                moved.view(-1)[index] += sign * step
                sides.append(float((of(**{**exact, name: moved}) * dy).sum()))
            differences.view(-1)[index] = (sides[0] - sides[1]) / (2.0 * step)
        made[name] = differences
    return made


def test_property_46_gradients_are_finite_differences(device: str) -> None:
    parts = operands(device, 3, k1=6, n=4, k2=5)
    for part in parts.values():
        part.requires_grad_()
    dy = torch.randn(3, 5, device=device)
    lowrank.gated_low_rank(**parts, u_layout="kn", scale=0.5).backward(dy)
    wanted = finite_differences(lambda **each: formula(**each, scale=0.5), parts, dy)
    for name, part in parts.items():
        assert error(part.grad, wanted[name]) < 1e-5, name


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 15, 16, 17, 33, 1000])
def test_property_45_46_edges_of_tiles_are_those_of_double_precision(
    device: str, size: int, dtype: torch.dtype
) -> None:
    for shape in ({"k1": 16, "k2": 33}, {"k1": size, "k2": 17}, {"k1": 15, "k2": size}):
        for rank in (1, 4, 8, 16, 64):
            parts = operands(device, size, **shape, n=rank, dtype=dtype)
            for part in parts.values():
                part.requires_grad_()
            exact = doubles(parts)
            y = lowrank.gated_low_rank(**parts, u_layout="kn")
            reference = formula(**exact)
            assert error(y, reference) < TOLERANCE[dtype], (shape, rank)
            dy = torch.randn_like(y)
            y.backward(dy)
            reference.backward(dy.double())
            for name, part in parts.items():
                assert part.grad.dtype == dtype
                assert error(part.grad, exact[name].grad) < TOLERANCE[dtype], (name, shape, rank)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("batch", "k", "n"), [((4096,), 768, 8), ((4, 1024), 1536, 16)])
def test_property_45_46_layers_of_models_are_those_of_double_precision(
    device: str, batch: tuple[int, ...], k: int, n: int, dtype: torch.dtype
) -> None:
    # Blocks of rows and sums over thousands of rows, which small cases do not have.
    parts = operands(device, *batch, k1=k, n=n, k2=k, dtype=dtype)
    for part in parts.values():
        part.requires_grad_()
    y = lowrank.gated_low_rank(**parts, u_layout="kn", scale=0.25)
    dy = torch.randn_like(y)
    y.backward(dy)
    x, v, codes, u, d = (part.detach().double() for part in (*parts.values(), dy))
    h, g = x @ v, 0.25 * (d @ u)
    exact = {
        "x": (g * codes) @ v.T,
        "v": x.flatten(0, -2).T @ (g * codes).flatten(0, -2),
        "codes": h * g,
        "u": 0.25 * d.flatten(0, -2).T @ (h * codes).flatten(0, -2),
    }
    assert error(y, 0.25 * (h * codes) @ u.T) < TOLERANCE[dtype]
    for name, part in parts.items():
        assert error(part.grad, exact[name]) < TOLERANCE[dtype], name


@contextmanager
def tf32_allowed() -> Iterator[None]:
    """Sets whether torch may use tf32 in products, and restores the setting afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Floats rounded to the 11 bits of tf32, to the nearest and ties to even."""
    bits = tensor.detach().contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def test_tf32_holds_eleven_bits(device: str) -> None:
    given = torch.tensor([1.0 + 2.0**-10, 1.0 + 2.0**-11, -3.0 * (1.0 + 2.0**-12)], device=device)
    assert tf32(given).tolist() == [1.0 + 2.0**-10, 1.0, -3.0]


def test_torch_may_do_what_it_might_before_also_if_a_call_raises(device: str) -> None:
    before = torch.get_float32_matmul_precision()
    seen = []

    def refused() -> None:
        with tf32_allowed():
            seen.append(torch.get_float32_matmul_precision())
            lowrank.adapter_gradients(*(torch.zeros(2, 3, device=device) for _ in range(3)))

    with pytest.raises(pl.InputError, match=r"b is \[2, 3\]"):
        refused()
    assert (seen, torch.get_float32_matmul_precision()) == (["high"], before)


def test_updates_do_not_become_tf32(device: str) -> None:
    x = torch.full((64, 64), 1.0 + 2.0**-12, device=device)  # a number that tf32 cannot hold
    v, u = torch.ones(64, 8, device=device), torch.ones(32, 8, device=device)
    with tf32_allowed():
        y = lowrank.gated_low_rank(x, v, None, u, u_layout="kn")
    assert torch.equal(y, torch.full_like(y, 8.0 * (64.0 + 2.0**-6)))


def test_property_45_46_gradients_of_updates_do_not_become_tf32(device: str) -> None:
    parts = operands(device, 512, k1=768, n=8, k2=768)
    rounded = {name: tf32(part).double().requires_grad_() for name, part in parts.items()}
    for part in parts.values():
        part.requires_grad_()
    exact = doubles(parts)
    dy = torch.randn(512, 768, device=device)
    with tf32_allowed():
        y = lowrank.gated_low_rank(**parts, u_layout="kn")
        y.backward(dy)
    reference, coarse = formula(**exact), formula(**rounded)
    reference.backward(dy.double())
    coarse.backward(tf32(dy).double())
    assert error(y, reference) < 1e-5 < error(coarse, reference)
    for name, part in parts.items():
        wanted = exact[name].grad
        assert error(part.grad, wanted) < 1e-5 < error(rounded[name].grad, wanted), name


@pytest.mark.parametrize(("k", "n"), [(256, 8), (768, 8), (1536, 16), (2048, 40)])
@pytest.mark.parametrize(("of_dy", "of_v"), [(3e4, 1e-5), (1e-6, 1e3)])
def test_property_46_what_lies_between_has_the_range_of_floats(
    of_dy: float, of_v: float, k: int, n: int, device: str
) -> None:
    parts = operands(device, 40, k1=k, k2=k, n=n, dtype=torch.float16)
    parts["v"] = (torch.randn(k, n, device=device) * of_v).half()
    parts["x"].requires_grad_()
    dy = (torch.rand(40, k, device=device) * of_dy).half()
    lowrank.gated_low_rank(**parts, u_layout="kn").backward(dy)
    between = dy.double() @ parts["u"].double()
    assert not 2.0**-14 < float(between.abs().mean()) < 65504.0  # beyond what 16 bits hold well
    exact = between * parts["codes"].double() @ parts["v"].double().t()
    assert error(parts["x"].grad, exact) < 1e-3
