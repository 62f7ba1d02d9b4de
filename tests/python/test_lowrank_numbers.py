"""Numbers of low-rank updates that are known exactly or otherwise: worked examples, finite differences, edges of tiles."""

from __future__ import annotations

import pytest
import torch

from pulsora import lowrank
from test_lowrank import DEVICES, TYPES, doubles, error, formula, operands

pytestmark = pytest.mark.parametrize("device", DEVICES)


def test_property_45_46_worked_examples_are_exact(device: str) -> None:
    x, v, codes, u, dy = (
        torch.tensor(rows, dtype=torch.float32, device=device)
        for rows in (
            [[1, 2], [3, -1]], [[2, 0], [1, 1]], [[1, 2], [0, -1]], [[1, 3], [-2, 1]], [[1, 0], [2, -1]],
        )
    )  # fmt: skip
    for part in (x, v, codes, u):
        part.requires_grad_()
    for dtype in TYPES:
        given = [part.to(dtype) for part in (x, v, codes, u)]
        y = lowrank.gated_low_rank(*given, u_layout="kn", scale=2.0)
        # x v = [[4, 2], [5, -1]], gated [[4, 4], [0, 1]]; dy u = [[1, 3], [4, 5]], gated [[1, 6], [0, -5]].
        assert y.tolist() == [[32.0, -8.0], [6.0, 2.0]]
        made = torch.autograd.grad(y, (x, v, codes, u), dy.to(dtype))
        assert [gradient.tolist() for gradient in made] == [
            [[4.0, 14.0], [0.0, -10.0]], [[2.0, -18.0], [4.0, 34.0]], [[8.0, 12.0], [40.0, -10.0]],
            [[8.0, 12.0], [0.0, -2.0]],
        ]  # fmt: skip


def test_property_46_gradients_are_finite_differences(device: str) -> None:
    parts = operands(device, 3, k1=6, n=4, k2=5)
    for part in parts.values():
        part.requires_grad_()
    dy = torch.randn(3, 5, device=device)
    lowrank.gated_low_rank(**parts, u_layout="kn", scale=0.5).backward(dy)
    exact = {name: part.detach().double() for name, part in parts.items()}
    step = 1e-4
    for name, part in parts.items():
        differences = torch.zeros_like(exact[name])
        for index in range(part.numel()):
            sides = []
            for sign in (1.0, -1.0):
                moved = exact[name].clone()
                moved.view(-1)[index] += sign * step
                y = formula(**{**exact, name: moved}, scale=0.5)
                sides.append(float((y * dy).sum()))
            differences.view(-1)[index] = (sides[0] - sides[1]) / (2.0 * step)
        assert error(part.grad, differences) < 1e-5, name


@pytest.mark.parametrize("size", [1, 15, 16, 17, 33, 1000])
def test_property_45_46_edges_of_tiles_are_those_of_double_precision(
    device: str, size: int
) -> None:
    for shape in ({"k1": 16, "k2": 33}, {"k1": size, "k2": 17}, {"k1": 15, "k2": size}):
        for rank in (1, 4, 8, 16, 64):
            parts = operands(device, size, **shape, n=rank)
            for part in parts.values():
                part.requires_grad_()
            exact = doubles(parts)
            y = lowrank.gated_low_rank(**parts, u_layout="kn")
            reference = formula(**exact)
            assert error(y, reference) < 1e-5
            dy = torch.randn_like(y)
            y.backward(dy)
            reference.backward(dy.double())
            for name, part in parts.items():
                assert error(part.grad, exact[name].grad) < 1e-5, (name, shape, rank)


def test_updates_do_not_become_tf32(device: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    x = torch.full((64, 64), 1.0 + 2.0**-12, device=device)  # a number that tf32 cannot hold
    v, u = torch.ones(64, 8, device=device), torch.ones(32, 8, device=device)
    try:
        y = lowrank.gated_low_rank(x, v, None, u, u_layout="kn")
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(y, torch.full_like(y, 8.0 * (64.0 + 2.0**-6)))


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
