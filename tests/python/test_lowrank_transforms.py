"""Low-rank updates in float64, under gradcheck, and under transforms of torch.func."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import pulsora as pl
from pulsora import lowrank
from test_lowrank import DEVICES, TOLERANCE, TYPES, error

pytestmark = pytest.mark.parametrize("device", DEVICES)
MEMBERS = 7
NAMES = ("x", "v", "codes", "u", "base")
# Which operands each member of the batch has of its own.
BATCHES = [("x",), ("x", "codes", "base"), ("codes",), ("base",), ("v",), ("u", "x"), NAMES]


def drawn(device: str, dtype: torch.dtype, *, rows: tuple[int, ...] = (3, 4)) -> dict[str, Any]:
    """Operands of a batch of MEMBERS updates: 6 inputs, 2 components, 5 outputs."""
    generator = torch.Generator().manual_seed(3)
    shapes = {"x": (*rows, 6), "v": (6, 2), "codes": (rows[0], 1, 2), "u": (2, 5)}
    shapes |= {"base": (*rows, 5), "weight": (5, 6), "bias": (5,)}
    return {
        name: torch.randn((MEMBERS, *shape), generator=generator).to(device, dtype)
        for name, shape in shapes.items()
    }


def update(**parts: Any) -> torch.Tensor:
    return lowrank.gated_low_rank(**parts, u_layout="nk", scale=0.7)


def layer(**parts: Any) -> torch.Tensor:
    return lowrank.gated_low_rank_linear(**parts, u_layout="nk", scale=0.7)


def member(parts: dict[str, Any], batched: tuple[str, ...], number: int) -> dict[str, Any]:
    return {name: part[number] if name in batched else part for name, part in parts.items()}


def shared(parts: dict[str, Any], batched: tuple[str, ...]) -> dict[str, Any]:
    """The operands, where those that are not batched have one value for all members."""
    return {name: part if name in batched else part[0] for name, part in parts.items()}


@pytest.mark.parametrize("frozen", [(), ("v", "u"), ("x", "codes", "base")])
def test_property_46_gradcheck_holds_in_float64(device: str, frozen: tuple[str, ...]) -> None:
    parts = shared(drawn(device, torch.float64), ())
    names = list(NAMES)
    given = [parts[name].requires_grad_(name not in frozen) for name in names]

    def of(*values: torch.Tensor) -> torch.Tensor:
        return update(**dict(zip(names, values, strict=True)))

    assert gradcheck(of, given)
    assert gradgradcheck(of, given)


def test_property_46_gradcheck_of_layers_and_adapters_holds_in_float64(device: str) -> None:
    parts = shared(drawn(device, torch.float64), ())
    names = ["x", "weight", "bias", "v", "codes", "u"]
    given = [parts[name].requires_grad_() for name in names]

    def of(*values: torch.Tensor) -> torch.Tensor:
        return layer(**dict(zip(names, values, strict=True)))

    assert gradcheck(of, given)
    assert gradgradcheck(of, given)
    a, b = (
        torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
        for shape in ((3, 4, 2), (2, 5))
    )
    assert gradcheck(lowrank.adapter_product, (a, b))
    assert gradgradcheck(lowrank.adapter_product, (a, b))


def test_float64_is_neither_rounded_nor_mixed(device: str) -> None:
    parts = shared(drawn(device, torch.float64), ())
    h = (parts["x"] @ parts["v"]) * parts["codes"]
    added = parts["base"] + 0.7 * (h @ parts["u"])
    rows = {name: parts[name] for name in NAMES}
    with torch.autocast(device, torch.bfloat16):  # torch's own products in float64 stay there, too
        assert error(update(**rows), added) < 1e-14
    with pytest.raises(TypeError, match=r"v has dtype torch.float32 and x has torch.float64"):
        update(**{**rows, "v": parts["v"].float()})
    dc, a, b = (
        torch.randn(4, 5, dtype=torch.float64, device=device),
        parts["x"][0, :, :2],
        parts["u"],
    )
    da, db = lowrank.adapter_gradients(dc, a, b)
    assert da is not None
    assert db is not None
    assert error(da, dc @ b.t()) < 1e-14
    assert error(db, a.t() @ dc) < 1e-14
    lowrank.adapter_gradients(dc, a, b, out=(None, db), accumulate=(False, True))
    assert error(db, 2 * a.t() @ dc) < 1e-14
    with pytest.raises(TypeError, match=r"b has dtype torch.float32 .* must be the type of all"):
        lowrank.adapter_gradients(dc, a, b.float())


@pytest.mark.parametrize("batched", BATCHES)
@pytest.mark.parametrize("dtype", [*TYPES, torch.float64])
def test_property_45_46_a_batch_of_vmap_is_its_members(
    device: str, dtype: torch.dtype, batched: tuple[str, ...]
) -> None:
    tolerance = TOLERANCE.get(dtype, 1e-13)
    parts = shared(drawn(device, dtype), batched)
    for names, of in ((NAMES, update), (("x", "weight", "bias", "v", "codes", "u"), layer)):
        given = {name: parts[name].detach().requires_grad_() for name in names}
        dims = {name: 0 if name in batched else None for name in names}
        if not any(dim == 0 for dim in dims.values()):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter(
                "error"
            )  # torch warns where it calls an operator member by member
            made = torch.vmap(lambda parts, of=of: of(**parts), (dims,))(given)
            with torch.no_grad():
                plainly = torch.vmap(lambda parts, of=of: of(**parts), (dims,))(given)
        exact = {name: part.detach().double().requires_grad_() for name, part in given.items()}
        wanted = torch.stack([of(**member(exact, batched, i)) for i in range(MEMBERS)])
        assert made.dtype == dtype
        assert error(made, wanted) < tolerance
        assert error(plainly, wanted) < tolerance
        dy = torch.randn_like(made)
        made.backward(dy)
        wanted.backward(dy.double())
        for name, part in given.items():
            assert part.grad is not None
            assert part.grad.shape == part.shape
            # Gradients of members are rounded, and then added in that type.
            assert error(part.grad, exact[name].grad) < 3 * tolerance, name


def test_a_batch_of_vmap_is_one_call(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    whole = lowrank.vmap.operators.gated_low_rank
    monkeypatch.setattr(
        lowrank.vmap.operators, "gated_low_rank", lambda *given: (calls.append(1), whole(*given))[1]
    )
    parts = shared(drawn(device, torch.float32), ("x",))
    rows = {name: parts[name] for name in NAMES}
    torch.vmap(lambda x: update(**{**rows, "x": x}))(rows["x"])
    assert len(calls) == 2  # of vmap, and within it the one call of its rule


def test_gradients_of_each_sample_and_jacobians(device: str) -> None:
    parts = shared(drawn(device, torch.float64), ("x",))

    def loss(v: torch.Tensor, u: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return update(x=x, v=v, codes=parts["codes"], u=u).square().sum()

    of_each = torch.vmap(torch.func.grad(loss, (0, 1)), (None, None, 0))
    of_v, of_u = of_each(parts["v"], parts["u"], parts["x"])
    for number, x in enumerate(parts["x"]):
        v, u = (parts[name].clone().requires_grad_() for name in ("v", "u"))
        h = (x @ v) * parts["codes"]
        (0.7 * (h @ u)).square().sum().backward()
        assert error(of_v[number], v.grad) < 1e-12
        assert error(of_u[number], u.grad) < 1e-12
    jacobian = torch.func.jacrev(lambda v: update(**{**parts_of(parts), "v": v}))(parts["v"])
    wanted = torch.autograd.functional.jacobian(
        lambda v: update(**{**parts_of(parts), "v": v}), parts["v"]
    )
    torch.testing.assert_close(jacobian, wanted)


def parts_of(parts: dict[str, Any]) -> dict[str, Any]:
    return {"x": parts["x"][0], "v": parts["v"], "codes": parts["codes"], "u": parts["u"]}


def test_gradients_of_adapters_under_vmap(device: str) -> None:
    torch.manual_seed(0)
    dc, a, b = (torch.randn(shape, device=device) for shape in ((5, 4, 3), (5, 4, 2), (2, 3)))
    da, db = torch.vmap(lambda dc, a: lowrank.adapter_gradients(dc, a, b))(dc, a)
    assert error(da, dc.double() @ b.double().t()) < 1e-6
    assert error(db, a.double().mT @ dc.double()) < 1e-6
    found = torch.vmap(
        torch.func.grad(lambda b, a: lowrank.adapter_product(a, b).square().sum()), (None, 0)
    )(b, a)
    exact = 2 * a.double().mT @ (a.double() @ b.double())
    assert error(found, exact) < 1e-6
    one = torch.zeros_like(b)
    with pytest.raises(pl.InputError, match="db is one tensor for a batch made by vmap"):
        torch.vmap(lambda dc, a: lowrank.adapter_gradients(dc, a, b, out=(None, one)))(dc, a)


def test_a_wrong_shape_of_a_member_is_refused_by_name(device: str) -> None:
    parts = shared(drawn(device, torch.float32), ("x", "v"))
    rows = {name: parts[name] for name in NAMES}
    with pytest.raises(pl.InputError, match=r"x is \[3, 4, 6\] and v is \[5, 2\]"):
        torch.vmap(lambda x, v: update(**{**rows, "x": x, "v": v}))(rows["x"], rows["v"][:, :5])
