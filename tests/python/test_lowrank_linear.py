"""A linear layer with a gated low-rank update in one operation: values, gradients, errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.functional import linear

import pulsora as pl
from pulsora import lowrank
from pulsora.lowrank import operators
from pulsora.nn import GatedAdapter
from test_lowrank import DEVICES, TOLERANCE, TYPES, doubles, error, formula
from test_lowrank import operands as update_operands
from test_lowrank_numbers import finite_differences, tf32, tf32_allowed
from test_lowrank_operators import opcheck

pytestmark = pytest.mark.parametrize("device", DEVICES)


@pytest.fixture(autouse=True)
def _always_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels serve wherever they can, however small a case is."""
    monkeypatch.setattr(operators, "always_fused", True)


def operands(device: str, *batch: int, **sizes: Any) -> dict[str, torch.Tensor]:
    """Operands of an update, with a weight whose product is about as large, and a bias."""
    parts = update_operands(device, *batch, **sizes)
    k1, k2 = parts["x"].shape[-1], parts["u"].shape[0]
    generator = torch.Generator().manual_seed(2)
    for name, shape in (("weight", (k2, k1)), ("bias", (k2,))):
        parts[name] = torch.randn(shape, generator=generator).to(device, parts["x"].dtype)
    return parts


def exactly(weight: torch.Tensor, bias: torch.Tensor | None = None, **update: Any) -> torch.Tensor:
    """The layer by plain operations of torch, with u [K2, N]."""
    return formula(**update, base=linear(update["x"], weight, bias))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("batch", "k1", "n", "k2"),
    [((2, 64), 256, 8, 256), ((1,), 768, 8, 760), ((3, 50), 72, 12, 200), ((40,), 640, 16, 24)],
)
def test_property_45_46_values_and_gradients_are_those_of_double_precision(
    device: str, dtype: torch.dtype, batch: tuple[int, ...], k1: int, n: int, k2: int
) -> None:
    parts = operands(device, *batch, k1=k1, n=n, k2=k2, dtype=dtype)
    for part in parts.values():
        part.requires_grad_()
    exact = doubles(parts)
    y = lowrank.gated_low_rank_linear(**parts, u_layout="kn", scale=0.5)
    reference = exactly(**exact, scale=0.5)
    assert y.dtype == dtype
    assert error(y, reference) < TOLERANCE[dtype]
    dy = torch.randn_like(y)
    y.backward(dy)
    reference.backward(dy.double())
    for name, part in parts.items():
        assert part.grad is not None
        assert part.grad.dtype == dtype
        assert error(part.grad, exact[name].grad) < TOLERANCE[dtype], name


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 33, 1000])
def test_property_45_46_edges_of_tiles_are_those_of_double_precision(
    device: str, size: int, dtype: torch.dtype
) -> None:
    whole = size if size % 8 == 0 else 8 * size  # as kernels ask for
    for k1, k2 in ((16, 40), (whole, 24), (24, whole), (15, 33), (size, 17), (15, size)):
        for rank in (1, 5, 8, 16):
            parts = operands(device, size, k1=k1, k2=k2, n=rank, dtype=dtype)
            for part in parts.values():
                part.requires_grad_()
            y = lowrank.gated_low_rank_linear(**parts, u_layout="kn")
            assert y.shape == (size, k2)
            if not y.numel():
                continue
            exact = doubles(parts)
            reference = exactly(**exact)
            assert error(y, reference) < TOLERANCE[dtype], (k1, k2, rank)
            dy = torch.randn_like(y)
            y.backward(dy)
            reference.backward(dy.double())
            for name, part in parts.items():
                wanted = exact[name].grad
                assert error(part.grad, wanted) < TOLERANCE[dtype], (name, k1, k2, rank)


@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_property_46_gradients_are_finite_differences(device: str, layout: str) -> None:
    parts = operands(device, 3, k1=8, n=4, k2=5)
    for part in parts.values():
        part.requires_grad_()
    dy = torch.randn(3, 5, device=device)
    u = parts["u"] if layout == "kn" else parts["u"].t()
    lowrank.gated_low_rank_linear(**{**parts, "u": u}, u_layout=layout, scale=0.5).backward(dy)
    wanted = finite_differences(lambda **each: exactly(**each, scale=0.5), parts, dy)
    for name, part in parts.items():
        assert error(part.grad, wanted[name]) < 1e-5, name


def test_property_45_46_the_update_of_a_layer_does_not_become_tf32(device: str) -> None:
    # torch makes the product of x and the weight, and may round it in tf32. Here that changes
    # nothing: tf32 holds x, dy and the weight exactly, and the frozen weight has one number in a
    # row, so that no sum is rounded. The test thus sees the products with v, codes and u.
    parts = operands(device, 512, k1=768, n=8, k2=768)
    parts["x"] = tf32(parts["x"])
    parts["weight"] = tf32(torch.diag(parts["bias"]))
    coarse = {name: tf32(part).double().requires_grad_() for name, part in parts.items()}
    coarse["bias"] = parts["bias"].double().requires_grad_()
    learned = ("x", "bias", "v", "codes", "u")
    for name in learned:
        parts[name].requires_grad_()
    exact = doubles(parts)
    dy = tf32(torch.randn(512, 768, device=device))
    with tf32_allowed():
        y = lowrank.gated_low_rank_linear(**parts, u_layout="kn")
        y.backward(dy)
    reference, rounded = exactly(**exact), exactly(**coarse)
    reference.backward(dy.double())
    rounded.backward(dy.double())
    assert error(y, reference) < 1e-5 < error(rounded, reference)
    for name in learned:
        wanted = exact[name].grad
        assert error(parts[name].grad, wanted) < 1e-5, name
        # The gradient of the bias is a sum of dy alone.
        assert name == "bias" or error(coarse[name].grad, wanted) > 1e-5, name


def test_a_layer_without_an_update_or_a_bias(device: str) -> None:
    parts = operands(device, 20, k1=64, n=8, k2=48)
    del parts["bias"]
    y = lowrank.gated_low_rank_linear(
        **{**parts, "codes": torch.zeros_like(parts["codes"])}, u_layout="kn"
    )
    torch.testing.assert_close(y, linear(parts["x"], parts["weight"]), rtol=1e-5, atol=1e-5)
    ones = lowrank.gated_low_rank_linear(**{**parts, "codes": None}, u_layout="kn")
    assert (
        error(ones, exactly(**{n: p.double() for n, p in parts.items()} | {"codes": None})) < 1e-5
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_odd_strides_give_what_contiguous_operands_give(device: str, dtype: torch.dtype) -> None:
    parts = operands(device, 6, 8, k1=24, n=5, k2=16, dtype=dtype)
    y = lowrank.gated_low_rank_linear(**parts, u_layout="kn")
    x, weight, v, codes, u = (parts[name] for name in ("x", "weight", "v", "codes", "u"))
    wide = torch.randn(6, 8, 64, device=device).to(dtype)
    wide[..., 8:32] = x
    deep = torch.randn(16, 40, device=device).to(dtype)
    deep[:, 16:] = weight
    others: list[dict[str, torch.Tensor]] = [
        {"x": wide[..., 8:32]},
        {"x": x.transpose(0, 1).contiguous().transpose(0, 1)},
        {"weight": deep[:, 16:]},
        {"weight": weight.t().contiguous().t()},
        {"v": v.t().contiguous().t(), "codes": codes.transpose(0, 1).contiguous().transpose(0, 1)},
    ]
    # Of 16 bits, the base may be rounded otherwise.
    tolerance = 2.0 * TOLERANCE[dtype]
    for other in others:
        made = lowrank.gated_low_rank_linear(**{**parts, **other}, u_layout="kn")
        assert error(made, y.double()) < tolerance, other.keys()
    made = lowrank.gated_low_rank_linear(**{**parts, "u": u.t().contiguous()}, u_layout="nk")
    assert error(made, y.double()) < tolerance
    shared = codes[:1, :1]
    made, expanded = (
        lowrank.gated_low_rank_linear(**{**parts, "codes": each}, u_layout="kn")
        for each in (shared, shared.expand(6, 8, 5).contiguous())
    )
    assert torch.equal(made, expanded)


@pytest.mark.parametrize("wanted", ["x", "weight", "bias", "v", "codes", "u"])
def test_only_gradients_that_are_needed_are_made(device: str, wanted: str) -> None:
    parts = operands(device, 6)
    everything = {name: part.clone().requires_grad_() for name, part in parts.items()}
    lowrank.gated_low_rank_linear(**everything, u_layout="kn").square().sum().backward()
    parts[wanted].requires_grad_()
    lowrank.gated_low_rank_linear(**parts, u_layout="kn").square().sum().backward()
    assert [name for name, part in parts.items() if part.grad is not None] == [wanted]
    torch.testing.assert_close(parts[wanted].grad, everything[wanted].grad)


@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_gradients_have_gradients(device: str, layout: str) -> None:
    parts = operands(device, 2, 3)
    for part in parts.values():
        part.requires_grad_()
    exact = doubles(parts)
    u = parts["u"] if layout == "kn" else parts["u"].t()

    def twice(y: torch.Tensor, of: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        first = torch.autograd.grad(y.square().sum(), list(of.values()), create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), list(of.values()))

    made = twice(
        lowrank.gated_low_rank_linear(**{**parts, "u": u}, u_layout=layout, scale=3), parts
    )
    for ours, theirs in zip(made, twice(exactly(**exact, scale=3.0), exact), strict=True):
        assert error(ours, theirs) < 1e-5


@pytest.mark.parametrize("dtype", TYPES)
def test_the_operator_is_registered_as_torch_asks(device: str, dtype: torch.dtype) -> None:
    parts = operands(device, 2, 3, dtype=dtype)
    x, weight, v, codes, u, bias = (parts[k] for k in ("x", "weight", "v", "codes", "u", "bias"))
    operator = torch.ops.pulsora.gated_low_rank_linear.default
    for given in ((bias, codes), (None, codes[:, :1]), (bias, None)):
        opcheck(operator, (x, weight, given[0], v, given[1], u, "kn", 0.5))


def test_a_compiled_layer_is_one_graph_with_the_same_results(device: str) -> None:
    torch.manual_seed(0)
    layer = GatedAdapter(nn.Linear(24, 16), 4, gate=[0.5, 1.0, -1.0, 2.0]).to(device)
    layer.set_factors(torch.randn(16, 4), torch.randn(4, 24))
    x = torch.randn(4, 6, 24, device=device)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    leaves = list(layer.parameters())
    plain = torch.autograd.grad(layer(x).square().sum(), leaves)
    made = torch.autograd.grad(compiled(x).square().sum(), leaves)
    assert all(torch.equal(*each) for each in zip(made, plain, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_works_in_its_type(device: str, dtype: torch.dtype) -> None:
    parts = operands(device, 5)
    parts["v"].requires_grad_()
    with torch.autocast(device, dtype=dtype):
        y = lowrank.gated_low_rank_linear(**parts, u_layout="kn")
    assert y.dtype == dtype
    lower = {name: part.detach().to(dtype) for name, part in parts.items()}
    assert torch.equal(y.detach(), lowrank.gated_low_rank_linear(**lower, u_layout="kn"))
    y.float().sum().backward()
    assert parts["v"].grad is not None
    assert parts["v"].grad.dtype == torch.float32
    names = ("x", "weight", "bias", "v", "codes", "u")
    given = [parts[name].detach() for name in names]
    operator = torch.ops.pulsora.gated_low_rank_linear
    with torch.autocast(device, dtype=dtype):  # the operator itself takes what it is given
        y = operator(*given, "kn", 1.0)
    assert torch.equal(y, operator(*given, "kn", 1.0))


class Conv1D(nn.Module):
    """The Conv1D of transformers."""

    __module__ = "transformers.pytorch_utils"

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


def _bases() -> dict[str, nn.Module]:
    class Own(Conv1D):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2.0 * super().forward(x)

    Own.__name__ = "Conv1D"

    class Doubled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2.0 * super().forward(x)

    hooked, patched = nn.Linear(24, 16), nn.Linear(24, 16)
    hooked.register_forward_hook(lambda _module, _given, y: 2.0 * y)
    patched.forward = lambda x: 2.0 * linear(x, patched.weight)  # type: ignore[method-assign]
    return {
        "linear": nn.Linear(24, 16), "no bias": nn.Linear(24, 16, bias=False),
        "conv1d": Conv1D(24, 16), "namesake": Own(24, 16), "subclass": Doubled(24, 16),
        "hook": hooked, "patched": patched,
        "parametrised": nn.utils.parametrizations.weight_norm(nn.Linear(24, 16)),
    }  # fmt: skip


@pytest.mark.parametrize("kind", _bases())
def test_an_adapter_is_one_operation_where_its_base_is_a_plain_layer(
    device: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = _bases()[kind].to(device)
    adapter = GatedAdapter(base, 4, alpha=2.0)
    adapter.set_factors(torch.randn(16, 4), torch.randn(4, 24))
    x = torch.randn(3, 5, 24, device=device)
    expected = base(x) + 2.0 * (x @ adapter.b.T) @ adapter.a.T
    calls = []
    of = "pulsora.nn.gated_adapter.gated_low_rank_linear"
    monkeypatch.setattr(
        of, lambda *a, **b: calls.append(1) or lowrank.gated_low_rank_linear(*a, **b)
    )
    torch.testing.assert_close(adapter(x), expected, rtol=1e-5, atol=1e-5)
    assert bool(calls) == (kind in {"linear", "no bias", "conv1d"})


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"weight": torch.zeros(17, 23)}, pl.InputError, r"weight is \[17, 23\].*\[17, 24\]"),
        ({"weight": torch.zeros(24, 17)}, pl.InputError, r"weight is \[24, 17\].*\[17, 24\]"),
        ({"weight": torch.zeros(17, 24).half()}, TypeError, "weight has dtype torch.float16"),
        ({"weight": torch.zeros(17, 24, device="meta")}, pl.DeviceError, "weight is on meta"),
        ({"bias": torch.zeros(16)}, pl.InputError, r"bias is \[16\]; it must be \[K2\], \[17\]"),
        ({"bias": torch.zeros(1, 17)}, pl.InputError, r"bias is \[1, 17\]"),
        ({"v": torch.zeros(23, 5)}, pl.InputError, r"x is \[4, 24\] and v is \[23, 5\]"),
        ({"u_layout": "rows"}, pl.InputError, "u_layout is 'rows'"),
        ({"scale": float("nan")}, pl.InputError, "scale is nan"),
    ],
)
def test_errors_name_the_argument(
    device: str, changes: dict[str, Any], kind: type[Exception], words: str
) -> None:
    given: dict[str, Any] = {**operands(device, 4), "u_layout": "kn"}
    for name, value in changes.items():
        moves = isinstance(value, torch.Tensor) and value.device.type != "meta"
        given[name] = value.to(device) if moves else value
    with pytest.raises(kind, match=words):
        lowrank.gated_low_rank_linear(**given)


@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script:DeprecationWarning"
)  # of torch's own forward mode
@pytest.mark.parametrize("name", ["x", "weight", "v", "codes", "u", "bias"])
def test_derivatives_in_forward_mode_are_refused_rather_than_lost(device: str, name: str) -> None:
    given = operands(device, 4)

    def of(tensor: torch.Tensor) -> torch.Tensor:
        return lowrank.gated_low_rank_linear(**{**given, name: tensor}, u_layout="kn")

    tangent = torch.ones_like(given[name])
    with pytest.raises(NotImplementedError, match=f"{name} has a tangent.*reverse mode"):
        torch.func.jvp(of, (given[name],), (tangent,))
    if name == "weight":
        return
    of_update = {each: given[each] for each in ("x", "v", "codes", "u")}
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(given[name], tangent)
        update = of_update | ({"base": dual.expand(4, -1)} if name == "bias" else {name: dual})
        with pytest.raises(NotImplementedError, match="has a tangent"):
            lowrank.gated_low_rank(**update, u_layout="kn")
        lowrank.gated_low_rank(**of_update, u_layout="kn")  # without tangents of its own


def test_shapes_are_told_on_the_meta_device(device: str) -> None:
    adapter = GatedAdapter(nn.Linear(24, 16), 4).to(device).to("meta")
    assert adapter(torch.zeros(3, 24, device="meta")).shape == (3, 16)
