"""The gated low-rank update in torch: values, gradients, broadcasting, compilation, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import pulsora as pl
from pulsora import lowrank

if TYPE_CHECKING:
    from collections.abc import Callable

_HAS_GPU = torch.cuda.is_available() and pl.cuda_device_count() > 0
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not _HAS_GPU, reason="no GPU that can be used")),
]
TYPES = [torch.float32, torch.float16, torch.bfloat16]
# Against double precision, relative in the norm.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}

pytestmark = pytest.mark.parametrize("device", DEVICES)


def operands(
    device: str,
    *batch: int,
    k1: int = 24,
    n: int = 5,
    k2: int = 17,
    dtype: torch.dtype = torch.float32,
) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    return {
        "x": normal(*batch, k1),
        "v": normal(k1, n),
        "codes": normal(*batch, n),
        "u": normal(k2, n),
    }


def formula(
    x: torch.Tensor,
    v: torch.Tensor,
    codes: torch.Tensor | None,
    u: torch.Tensor,
    scale: float = 1.0,
    base: torch.Tensor | None = None,
) -> torch.Tensor:
    """The update by plain operations of torch, with u [K2, N]."""
    hidden = x @ v
    y = (hidden if codes is None else hidden * codes) @ u.T * scale
    return y if base is None else base + y


def error(made: torch.Tensor, exact: torch.Tensor) -> float:
    assert made.shape == exact.shape
    return float(
        (made.detach().cpu().double() - exact.detach().cpu()).norm() / exact.detach().norm()
    )


def doubles(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: part.detach().double().requires_grad_() for name, part in parts.items()}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("batch", "k1", "n", "k2"),
    [((2, 64), 256, 8, 256), ((1,), 768, 8, 768), ((3, 5), 16, 12, 40), ((40,), 1536, 16, 24)],
)
def test_property_45_46_values_and_gradients_are_those_of_double_precision(
    device: str, dtype: torch.dtype, batch: tuple[int, ...], k1: int, n: int, k2: int
) -> None:
    parts = operands(device, *batch, k1=k1, n=n, k2=k2, dtype=dtype)
    parts["base"] = torch.randn(*batch, k2, device=device).to(dtype)
    for part in parts.values():
        part.requires_grad_()
    exact = doubles(parts)
    y = lowrank.gated_low_rank(**parts, u_layout="kn", scale=0.5)
    reference = formula(**exact, scale=0.5)
    assert y.dtype == dtype
    assert error(y, reference) < TOLERANCE[dtype]
    dy = torch.randn_like(y)
    y.backward(dy)
    reference.backward(dy.double())
    for name, part in parts.items():
        assert part.grad is not None
        assert part.grad.dtype == dtype
        assert error(part.grad, exact[name].grad) < TOLERANCE[dtype], name


def test_the_worked_sizes_are_within_an_absolute_error(device: str) -> None:
    torch.manual_seed(0)
    x, v = 0.1 * torch.randn(2, 64, 256), 0.02 * torch.randn(256, 8)
    codes, u = 0.5 * torch.randn(2, 64, 8), 0.02 * torch.randn(256, 8)
    halves = [each.half().to(device) for each in (x, v, codes, u)]
    y = lowrank.gated_low_rank(*halves, u_layout="kn")
    assert (y.double() - formula(*(each.double() for each in halves))).abs().max() < 1e-4


@pytest.mark.parametrize(
    "shape", [(5,), (1, 5), (4, 5), (3, 1, 5), (1, 4, 1), (), (3, 4, 5), (2, 1, 1, 5)]
)
def test_codes_broadcast_without_being_copied(device: str, shape: tuple[int, ...]) -> None:
    parts = operands(device, 2, 3, 4)
    parts["codes"] = torch.randn(shape, device=device)
    for part in parts.values():
        part.requires_grad_()
    exact = doubles(parts)
    y = lowrank.gated_low_rank(**parts, u_layout="kn")
    reference = formula(**exact)
    assert error(y, reference) < 1e-5
    y.sum().backward()
    reference.sum().backward()
    assert parts["codes"].grad is not None
    assert parts["codes"].grad.shape == shape
    for name, part in parts.items():
        assert error(part.grad, exact[name].grad) < 1e-5, name


def test_odd_strides_give_what_contiguous_operands_give(device: str) -> None:
    parts = operands(device, 6, 8)
    y = lowrank.gated_low_rank(**parts, u_layout="kn")
    x, v, codes, u = parts.values()
    wide = torch.randn(6, 8, 60, device=device)
    wide[..., 3:27] = x
    others = (
        (wide[..., 3:27], v, codes, u),
        (x.transpose(0, 1).contiguous().transpose(0, 1), v, codes, u),
        (
            x,
            v.T.contiguous().T,
            codes.transpose(0, 1).contiguous().transpose(0, 1),
            u.flip(0).flip(0),
        ),
    )
    for other in others:
        torch.testing.assert_close(lowrank.gated_low_rank(*other, u_layout="kn"), y)
    narrow = u.T.contiguous()
    torch.testing.assert_close(lowrank.gated_low_rank(x, v, codes, narrow, u_layout="nk"), y)
    assert torch.equal(
        lowrank.gated_low_rank(x, v, None, u, u_layout="kn"),
        lowrank.gated_low_rank(x, v, torch.ones_like(codes), u, u_layout="kn"),
    )


def test_gradients_of_u_in_both_layouts(device: str) -> None:
    x, v, codes, u = operands(device, 7).values()
    wide, narrow = u.clone().requires_grad_(), u.T.clone().requires_grad_()
    lowrank.gated_low_rank(x, v, codes, wide, u_layout="kn").square().sum().backward()
    lowrank.gated_low_rank(x, v, codes, narrow, u_layout="nk").square().sum().backward()
    assert wide.grad is not None
    assert narrow.grad is not None
    torch.testing.assert_close(wide.grad, narrow.grad.T)


def test_gates_of_zero_give_zeros_and_gradients_that_are_there(device: str) -> None:
    parts = operands(device, 9)
    parts["codes"] = torch.zeros_like(parts["codes"])
    for part in parts.values():
        part.requires_grad_()
    y = lowrank.gated_low_rank(**parts, u_layout="kn")
    y.sum().backward()
    assert torch.count_nonzero(y) == 0
    for name in "xvu":
        assert parts[name].grad is not None
        assert torch.count_nonzero(parts[name].grad) == 0
    assert torch.count_nonzero(parts["codes"].grad) > 0


@pytest.mark.parametrize(
    ("batch", "k1", "n", "k2"),
    [
        ((0,), 4, 3, 5),
        ((2, 0, 3), 4, 3, 5),
        ((3,), 4, 0, 5),
        ((3,), 0, 2, 5),
        ((3,), 4, 2, 0),
        ((), 4, 2, 5),
    ],
)
def test_empty_sizes_and_single_vectors(
    device: str, batch: tuple[int, ...], k1: int, n: int, k2: int
) -> None:
    parts = operands(device, *batch, k1=k1, n=n, k2=k2)
    for part in parts.values():
        part.requires_grad_()
    y = lowrank.gated_low_rank(**parts, u_layout="kn")
    torch.testing.assert_close(y, formula(**parts))
    y.sum().backward()
    exact = doubles(parts)
    formula(**exact).sum().backward()
    for name, part in parts.items():
        assert part.grad is not None
        torch.testing.assert_close(part.grad.double(), exact[name].grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wanted", ["x", "v", "codes", "u", "base"])
def test_only_gradients_that_are_needed_are_made(device: str, wanted: str) -> None:
    parts = operands(device, 6)
    parts["base"] = torch.randn(6, 17, device=device)
    everything = {name: part.clone().requires_grad_() for name, part in parts.items()}
    lowrank.gated_low_rank(**everything, u_layout="kn").square().sum().backward()
    parts[wanted].requires_grad_()
    lowrank.gated_low_rank(**parts, u_layout="kn").square().sum().backward()
    assert [name for name, part in parts.items() if part.grad is not None] == [wanted]
    torch.testing.assert_close(parts[wanted].grad, everything[wanted].grad)


def test_nothing_is_recorded_where_nothing_needs_a_gradient(device: str) -> None:
    parts = operands(device, 3)
    parts["v"].requires_grad_()
    with torch.no_grad():
        assert lowrank.gated_low_rank(**parts, u_layout="kn").grad_fn is None


@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_gradients_have_gradients(device: str, layout: str) -> None:
    parts = operands(device, 2, 3)
    parts["codes"] = parts["codes"][:, :1].clone()
    for part in parts.values():
        part.requires_grad_()
    exact = doubles(parts)
    u = parts["u"] if layout == "kn" else parts["u"].t()

    def twice(y: torch.Tensor, of: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        first = torch.autograd.grad(y.sum(), list(of.values()), create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), list(of.values()))

    made = twice(
        lowrank.gated_low_rank(parts["x"], parts["v"], parts["codes"], u, u_layout=layout, scale=3),
        parts,
    )
    for ours, theirs in zip(made, twice(formula(**exact, scale=3.0), exact), strict=True):
        assert error(ours, theirs) < 1e-5


def test_a_compiled_function_is_one_graph_with_the_same_results(device: str) -> None:
    parts = operands(device, 4, 6)
    for part in parts.values():
        part.requires_grad_()

    def loss(**parts: torch.Tensor) -> torch.Tensor:
        return lowrank.gated_low_rank(**parts, u_layout="kn", scale=2.0).square().sum()

    names = list(parts)
    plain = torch.autograd.grad(loss(**parts), list(parts.values()))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    made = torch.autograd.grad(compiled(**parts), list(parts.values()))
    for name, ours, theirs in zip(names, made, plain, strict=True):
        assert torch.equal(ours, theirs), name


def test_one_graph_of_dynamic_sizes_serves_all_of_them(device: str) -> None:
    graphs: list[torch.fx.GraphModule] = []
    counts: list[int] = []  # of them, after each size

    def loss(*parts: torch.Tensor) -> torch.Tensor:
        x, v, codes, u = parts
        return lowrank.gated_low_rank(x, v, codes, u, u_layout="kn", scale=2.0).square().sum()

    def counted(graph: torch.fx.GraphModule, given: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        made: Callable[..., Any] = aot_eager(graph, given)
        return made

    aot_eager = torch._dynamo.lookup_backend("aot_eager")
    compiled = torch.compile(loss, fullgraph=True, backend=counted, dynamic=True)
    for batch, k1, n, k2 in (((4, 6), 24, 5, 17), ((3, 2), 40, 8, 33), ((5, 7), 16, 3, 20)):
        parts = operands(device, *batch, k1=k1, n=n, k2=k2)
        leaves = [part.requires_grad_() for part in parts.values()]
        plain = torch.autograd.grad(loss(*leaves), leaves)
        made = torch.autograd.grad(compiled(*leaves), leaves)
        for name, ours, theirs in zip(parts, made, plain, strict=True):
            assert torch.equal(ours, theirs), (name, batch)
        counts.append(len(graphs))
    assert counts == [counts[0]] * 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_works_in_its_type(device: str, dtype: torch.dtype) -> None:
    parts = operands(device, 5)
    parts["base"] = torch.randn(5, 17, device=device, dtype=dtype)
    parts["v"].requires_grad_()
    with torch.autocast(device, dtype=dtype):
        y = lowrank.gated_low_rank(**parts, u_layout="kn")
    assert y.dtype == dtype
    lower = {name: part.detach().to(dtype) for name, part in parts.items()}
    assert torch.equal(y.detach(), lowrank.gated_low_rank(**lower, u_layout="kn"))
    y.float().sum().backward()
    assert parts["v"].grad is not None
    assert parts["v"].grad.dtype == torch.float32


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_gradients_are_the_same(device: str, reentrant: bool) -> None:
    parts = operands(device, 6)
    for part in parts.values():
        part.requires_grad_()

    def update(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.tanh(lowrank.gated_low_rank(*tensors, u_layout="kn"))

    plain = torch.autograd.grad(update(*parts.values()).sum(), list(parts.values()))
    kept = checkpoint(update, *parts.values(), use_reentrant=reentrant)
    kept.sum().backward()
    for part, gradient in zip(parts.values(), plain, strict=True):
        assert torch.equal(part.grad, gradient)


def test_the_base_and_the_operands_stay_as_they_are(device: str) -> None:
    parts = operands(device, 6)
    parts["base"] = torch.randn(6, 17, device=device)
    before = {name: part.clone() for name, part in parts.items()}
    lowrank.gated_low_rank(**parts, u_layout="kn")
    assert all(torch.equal(before[name], part) for name, part in parts.items())


def _replaced(device: str, **changes: Any) -> dict[str, Any]:
    return {**operands(device, 4), "u_layout": "kn", **changes}


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"u_layout": "rows"}, pl.InputError, "u_layout is 'rows'"),
        ({"u_layout": "nk"}, pl.InputError, r"u is \[17, 5\] with u_layout='nk'.*or u_layout='kn'"),
        ({"v": torch.zeros(23, 5)}, pl.InputError, r"x is \[4, 24\] and v is \[23, 5\]"),
        ({"v": torch.zeros(24)}, pl.InputError, r"v is \[24\]; it must be a matrix"),
        ({"u": torch.zeros(1, 17, 5)}, pl.InputError, r"u is \[1, 17, 5\]; it must be a matrix"),
        ({"x": torch.zeros(())}, pl.InputError, "x is a single number"),
        ({"codes": torch.zeros(3, 5)}, pl.InputError, r"codes are \[3, 5\].*\[4, 5\]"),
        ({"base": torch.zeros(4, 16)}, pl.InputError, r"base is \[4, 16\].*\[4, 17\]"),
        ({"x": torch.zeros(4, 24, dtype=torch.int32)}, TypeError, "x has dtype torch.int32"),
        ({"codes": torch.zeros(4, 5).half()}, TypeError, "codes has dtype torch.float16"),
        ({"u": torch.zeros(17, 5, device="meta")}, pl.DeviceError, "u is on meta"),
        ({"scale": float("inf")}, pl.InputError, "scale is inf"),
        ({"scale": -1e300}, pl.InputError, r"scale is -1e\+300; give 1e\+15 at most"),
        ({"scale": torch.tensor(1.0)}, pl.InputError, "scale is tensor"),
        ({"codes": 0.5}, TypeError, "codes is a float; give a tensor, for example torch.as_tensor"),
        ({"v": [[1.0]]}, TypeError, "v is a list; give a tensor"),
    ],
)
def test_errors_name_the_argument(
    device: str, changes: dict[str, Any], kind: type[Exception], words: str
) -> None:
    moved = {
        name: value.to(device)
        if isinstance(value, torch.Tensor) and value.device.type != "meta" and name != "scale"
        else value
        for name, value in changes.items()
    }
    with pytest.raises(kind, match=words):
        lowrank.gated_low_rank(**_replaced(device, **moved))
