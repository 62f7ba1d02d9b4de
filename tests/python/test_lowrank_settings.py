"""Settings and kinds of tensors that low-rank updates refuse, before anything has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from pulsora import lowrank

if TYPE_CHECKING:
    from collections.abc import Callable

DC, A, B = torch.ones(3, 5), torch.ones(3, 2), torch.ones(2, 5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"wanted": 1}, "wanted is 1; give two bools, one for dA and one for dB"),
        ({"wanted": True}, "wanted is True; give two bools"),
        ({"wanted": (True,)}, r"wanted is \(True,\); give two bools"),
        ({"wanted": (1, 0)}, r"wanted is \(1, 0\); give two bools"),
        ({"out": 1}, "out is 1; give two tensors or None, one for dA and one for dB"),
        ({"out": (None,)}, r"out is \(None,\); give two tensors or None"),
        ({"out": (None, 2)}, r"out\[1\] is a int; give a tensor"),
        ({"out": (None, B.to_sparse())}, r"out\[1\] has the layout torch.sparse_coo"),
        ({"accumulate": 1}, "accumulate is 1; give two bools, one for dA and one for dB"),
        ({"accumulate": (True,)}, r"accumulate is \(True,\); give two bools"),
    ],
)
def test_settings_of_gradients_are_refused(settings: dict[str, Any], message: str) -> None:
    out = (torch.full((3, 2), 7.0), torch.full((2, 5), 7.0))
    with pytest.raises(TypeError, match=message):
        lowrank.adapter_gradients(DC, A, B, **{"out": out} | settings)
    assert all(bool((each == 7.0).all()) for each in out)


CALLS: dict[str, tuple[Callable[..., object], dict[str, torch.Tensor], dict[str, str]]] = {
    "update": (
        lowrank.gated_low_rank,
        {
            "x": torch.ones(3, 4), "v": torch.ones(4, 2), "codes": torch.ones(3, 2),
            "u": torch.ones(5, 2), "base": torch.ones(3, 5),
        },
        {"u_layout": "kn"},
    ),
    "layer": (
        lowrank.gated_low_rank_linear,
        {
            "x": torch.ones(3, 4), "weight": torch.ones(5, 4), "v": torch.ones(4, 2),
            "codes": torch.ones(3, 2), "u": torch.ones(5, 2),
        },
        {"u_layout": "kn"},
    ),
    "gradients": (lowrank.adapter_gradients, {"dc": DC, "a": A, "b": B}, {}),
    "product": (lowrank.adapter_product, {"a": A, "b": B}, {}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "name"), [(call, name) for call, row in CALLS.items() for name in row[1]]
)
def test_sparse_operands_are_refused_by_name(call: str, name: str) -> None:
    function, operands, settings = CALLS[call]
    function(**operands, **settings)
    with pytest.raises(
        TypeError, match=rf"^{name} has the layout torch.sparse_coo; give {name}.to_dense\(\)"
    ):
        function(**operands | {name: operands[name].to_sparse()}, **settings)
