"""Operators of low-rank updates as torch has them registered, and calls past its dispatcher: only where it would do nothing else."""

# ruff: noqa: ANN401 - torch has no types for what it hands to functions and modes

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from pulsora import lowrank
from pulsora.lowrank.dispatch import direct


class Ways:
    """A call by both ways, and which was taken."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.call = direct(self.by("operator"), self.by("kernel"))

    def by(self, name: str) -> Any:
        def taken(*operands: Any) -> object:
            self.taken.append(name)
            return operands[0]

        return taken

    def way(self, *operands: object) -> str:
        self.call(*operands)
        return self.taken.pop()


class Subclass(torch.Tensor):
    """A tensor with operations of its own."""

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Any,
        _types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        return func(*args, **(kwargs or {}))


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


def test_the_kernel_is_called_for_plain_tensors(device: str) -> None:
    ways = Ways()
    x = torch.randn(3, 4, device=device)
    assert ways.way(x, None, 1.0, "kn") == "kernel"
    assert ways.way(torch.nn.Parameter(x), x.half(), x.t()) == "kernel"
    with torch.no_grad():
        assert ways.way(x) == "kernel"
    with torch.inference_mode():
        assert ways.way(x, torch.zeros(2, device=device)) == "kernel"
    with torch.autocast(device, dtype=torch.bfloat16):
        assert ways.way(x) == "kernel"
    inside: list[str] = []

    class Node(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            inside.append(ways.way(x))
            return 2 * x

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
            inside.append(ways.way(dy, *ctx.saved_tensors))
            return 2 * dy

    Node.apply(x.requires_grad_()).sum().backward()  # type: ignore[no-untyped-call]
    assert inside == ["kernel", "kernel"]


@pytest.mark.filterwarnings("ignore:.torch.jit.trace. is deprecated")
def test_the_operator_is_called_for_anything_else(device: str) -> None:
    ways = Ways()
    x = torch.randn(3, 4, device=device)
    negative = torch.randn(3, dtype=torch.complex64, device=device).conj().imag
    assert negative.is_neg()
    others = {
        "negative": negative,
        "sparse": x.to_sparse(),
        "meta": x.to("meta"),
        "subclass": x.as_subclass(Subclass),
        "conjugate": torch.randn(3, dtype=torch.complex64, device=device).conj(),
        "zeros": torch._efficientzerotensor(3, device=device),  # type: ignore[attr-defined]
    }
    for name, other in others.items():
        assert ways.way(x, other) == "operator", name
        assert ways.way(x) == "kernel"
    with Mode():
        assert ways.way(x) == "operator"
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
    assert ways.way(fake) == "operator"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True):
        assert ways.way(x) == "operator"

    found: list[str] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        found.append(ways.way(x))
        return x.sum()

    torch.vmap(look)(x)
    torch.func.grad(look)(x)
    torch.func.functionalize(look)(x)
    torch.jit.trace(look, x, check_trace=False)
    assert found == ["operator"] * len(found)
    assert len(found) >= 4
    assert ways.way(x) == "kernel"


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
    # Operands that need gradients are for the test of autograd's registration, which checks nothing without them. The test of
    # graphs cannot take them: the operators record no gradients, which an autograd.Function above them makes; a test of
    # graphs of dynamic sizes below goes back through that.
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
    given = (dc, a.half(), b, torch.zeros_like(a), torch.zeros_like(b), accumulate)
    opcheck(torch.ops.pulsora.adapter_gradients.default, given)
