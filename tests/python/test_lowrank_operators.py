"""Operators of low-rank updates are registered as torch asks, and modes and profilers see them."""

# ruff: noqa: ANN401 - torch has no types for what it hands to functions and modes

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pulsora import lowrank


class Mode(TorchDispatchMode):
    """A mode that counts the calls of an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,
        _types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["x", "v", "codes", "u"])
def test_an_update_of_views_that_stand_for_negative_values(device: str, name: str) -> None:
    shapes = {"x": (5, 6), "v": (6, 3), "codes": (5, 3), "u": (4, 3)}
    complex_ = {
        each: torch.randn(shape, dtype=torch.complex64, device=device)
        for each, shape in shapes.items()
    }
    given = {each: value.imag.clone() for each, value in complex_.items()}
    wanted = lowrank.gated_low_rank(**{**given, name: -given[name]}, u_layout="kn")
    view = complex_[name].conj().imag
    assert view.is_neg()
    made = lowrank.gated_low_rank(**{**given, name: view}, u_layout="kn")
    torch.testing.assert_close(made, wanted, rtol=1e-6, atol=1e-6)


def test_modes_and_profilers_see_the_operators(device: str) -> None:
    parts = [
        torch.randn(shape, device=device).requires_grad_()
        for shape in ((5, 6), (6, 3), (5, 3), (4, 3))
    ]

    def step() -> None:
        lowrank.gated_low_rank(*parts, u_layout="kn").sum().backward()

    with Mode() as mode:
        step()
    assert "pulsora.gated_low_rank.default" in mode.seen
    assert "pulsora.gated_low_rank_backward.default" in mode.seen
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True
    ) as profile:
        step()
    names = {event.key for event in profile.key_averages()}
    assert {"pulsora::gated_low_rank", "pulsora::gated_low_rank_backward"} <= names


def opcheck(operator: torch._ops.OpOverload, given: tuple[Any, ...]) -> None:
    """All that torch's own tests of operators ask by default."""
    # Operands with requires_grad are for the test of autograd's registration, which checks nothing
    # without them. The test of graphs cannot take them, because an autograd.Function above the
    # operators makes the gradients; a test of graphs of dynamic sizes below runs its backward pass.
    torch.library.opcheck(operator, given)
    # torch refuses to write into leaves that need gradients.
    results = range(3, 5) if operator is torch.ops.pulsora.adapter_gradients.default else ()
    leaves = tuple(
        each.detach().requires_grad_(index not in results)
        if isinstance(each, torch.Tensor)
        else each
        for index, each in enumerate(given)
    )
    torch.library.opcheck(operator, leaves, test_utils="test_autograd_registration")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_the_operators_are_registered_as_torch_asks(
    device: str, layout: str, dtype: torch.dtype
) -> None:
    shapes = ((2, 3, 24), (24, 5), (2, 3, 5), (17, 5))
    x, v, codes, u = (torch.randn(shape, device=device).to(dtype) for shape in shapes)
    u = u if layout == "kn" else u.T.contiguous()
    ops = torch.ops.pulsora
    dy = torch.randn(2, 3, 17, device=device).to(dtype)
    opcheck(ops.gated_low_rank.default, (x, v, codes, u, layout, 0.5, dy))
    opcheck(ops.gated_low_rank.default, (x, v, None, u, layout, 0.5, None))
    given = (dy, x, v, codes[:, :1], u, layout, 0.5)
    opcheck(ops.gated_low_rank_backward.default, (*given, [True, False, True, True]))


@pytest.mark.parametrize("accumulate", [False, True])
def test_the_operator_of_adapters_is_registered_as_torch_asks(
    device: str, accumulate: bool
) -> None:
    dc, a, b = (torch.randn(shape, device=device) for shape in ((2, 3, 17), (2, 3, 4), (4, 17)))
    given = (dc, a.half(), b, torch.zeros_like(a), torch.zeros_like(b), [accumulate, False])
    opcheck(torch.ops.pulsora.adapter_gradients.default, given)
    opcheck(torch.ops.pulsora.adapter_gradients.default, (*given[:3], None, *given[4:]))
