"""Low-rank updates in graphs that torch captures, and in its streams, on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import pulsora as pl
from pulsora import lowrank
from pulsora.lowrank import operators
from test_lowrank import TOLERANCE, TYPES, error, operands
from test_lowrank_linear import exactly
from test_lowrank_linear import operands as layer_operands

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() and pl.cuda_device_count() > 0), reason="no GPU that can be used"
)

# Sizes for the fused kernels, and sizes for products by cuBLAS (of operands converted to 16 bits).
SIZES = [{"k1": 256, "n": 8, "k2": 256}, {"k1": 37, "n": 70, "k2": 45}]


@pytest.mark.parametrize("dtype", TYPES)
def test_kernels_of_their_own_serve_layers_of_models_and_no_others(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise tests of results would test torch's product and a separately added update."""
    if dtype != torch.float32 and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("in 16 bits, kernels for compute capability 9.0 alone")
    served: list[bool] = []
    called = operators._core.gated_low_rank_linear

    def noted(*arguments: object) -> bool:
        served.append(called(*arguments))
        return served[-1]

    monkeypatch.setattr(operators._core, "gated_low_rank_linear", noted)
    for rows, size, rank, is_served in (
        (4096, 768, 8, True),
        (16384, 768, 8, True),
        (4096, 1536, 16, True),
        (200, 768, 8, False),  # too few rows
        (4096, 768, 17, False),  # too many components
    ):
        x, weight, v, codes, u = (
            torch.randn(*shape, device="cuda").to(dtype)
            for shape in ((rows, size), (size, size), (size, rank), (rows, rank), (size, rank))
        )
        lowrank.gated_low_rank_linear(x, weight, v, codes, u, u_layout="kn")
        assert served.pop() is is_served, (rows, size, rank)
    assert served == []


def _captured(
    step: Callable[[], list[torch.Tensor]], stream: torch.cuda.Stream | None = None
) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor]]:
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        made = step()
    return graph, made


def _step_of(
    size: dict[str, int], dtype: torch.dtype
) -> tuple[Callable[[], list[torch.Tensor]], list[torch.Tensor]]:
    """A call with gradients, a call for the gradients of an adapter, and their input tensors."""
    parts = operands("cuda", 64, **size, dtype=dtype)
    for part in parts.values():
        part.requires_grad_()
    dy = torch.randn(64, size["k2"], device="cuda").to(dtype)
    a, b = (
        torch.randn(*shape, device="cuda").to(dtype)
        for shape in ((64, size["n"]), (size["n"], size["k2"]))
    )

    def step() -> list[torch.Tensor]:
        y = lowrank.gated_low_rank(**parts, u_layout="kn")
        return [
            y.detach(), *torch.autograd.grad(y, list(parts.values()), dy),
            *lowrank.adapter_gradients(dy, a, b),
        ]  # fmt: skip

    return step, [*parts.values(), dy, a, b]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_graph_gives_the_bits_of_plain_calls_whatever_is_done_between(
    dtype: torch.dtype, size: dict[str, int]
) -> None:
    step, given = _step_of(size, dtype)
    stream = torch.cuda.Stream()
    graph, made = _captured(step, stream)
    others = [_step_of(each, dtype)[0] for each in SIZES]
    tile = pl.Tile(17, 24, pl.SingleConfig(), seed=1, device="cuda:0")
    x = torch.ones(5, 24, device="cuda")
    with torch.no_grad():
        for part in given:
            part.mul_(0.5)
    for _ in range(3):
        # A recorded tile in the same stream, other calls there, and memory that is allocated and
        # filled.
        with torch.cuda.stream(stream):
            with pl.StepGraph(tile):
                tile.forward(x)
            for other in others:
                other()
        filled = [torch.full((size_,), 7.0, device="cuda") for size_ in (64, 4096, 1 << 20)]
        torch.cuda.synchronize()
        for tensor in made:
            tensor.zero_()
        graph.replay()
        assert all(torch.equal(*each) for each in zip(made, step(), strict=True))
        del filled


def test_the_memory_of_a_graph_is_torch_s_which_frees_it_with_the_graph() -> None:
    rows, k1 = 16384, 1184
    parts = operands("cuda", rows, k1=k1, n=70, dtype=torch.float16)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    graph, made = _captured(lambda: [lowrank.gated_low_rank(**parts, u_layout="kn")])
    assert torch.cuda.max_memory_allocated() - before > 4 * rows * k1  # inputs as floats
    graph.replay()
    torch.cuda.synchronize()
    del graph, made
    assert torch.cuda.memory_allocated() == before


# Rows, K1, K2 of each way to tile a layer on a GPU of 132 processors, with partial tiles.
LAYERS = [
    (4096, 768, 768),
    (16384, 768, 768),
    (16300, 776, 760),
    (1000, 768, 1000),
    (32768, 64, 256),
    (40000, 8, 584),
]


@pytest.mark.parametrize("rank", [8, 11, 16])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "k1", "k2"), LAYERS)
def test_property_45_layers_of_every_cut_are_those_of_double_precision(
    rows: int, k1: int, k2: int, dtype: torch.dtype, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "always_fused", True)
    parts = layer_operands("cuda", rows, k1=k1, k2=k2, n=rank, dtype=dtype)
    reference = exactly(**{name: part.double() for name, part in parts.items()})
    for v in (parts["v"], parts["v"].t().contiguous().t()):
        y = lowrank.gated_low_rank_linear(**{**parts, "v": v}, u_layout="kn")
        assert error(y, reference.cpu()) < TOLERANCE[dtype]
        # A race would show in some of many runs.
        for _ in range(20):
            assert torch.equal(y, lowrank.gated_low_rank_linear(**{**parts, "v": v}, u_layout="kn"))


@pytest.mark.parametrize("dtype", TYPES)
def test_layers_are_captured_in_graphs(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "always_fused", True)
    parts = layer_operands("cuda", 200, k1=64, k2=256, n=5, dtype=dtype)
    graph, made = _captured(lambda: [lowrank.gated_low_rank_linear(**parts, u_layout="kn")])
    parts["x"].mul_(0.5)
    graph.replay()
    assert torch.equal(made[0], lowrank.gated_low_rank_linear(**parts, u_layout="kn"))


def test_work_is_done_in_the_current_stream() -> None:
    parts = operands("cuda", 64, dtype=torch.float16)
    expected = lowrank.gated_low_rank(**parts, u_layout="kn")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        slow = torch.randn(4096, 4096, device="cuda")
        for _ in range(10):
            slow = torch.tanh(slow @ slow)
        x = parts["x"] + 0.0 * slow[0, 0].half()
        y = lowrank.gated_low_rank(**{**parts, "x": x}, u_layout="kn")
    stream.synchronize()
    assert torch.equal(y, expected)
