"""Adapters on weights that are tied, on layers that others look into, and on models in 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import pulsora as pl
from conftest import PERFECT
from pulsora.nn import GatedAdapter

if TYPE_CHECKING:
    from pathlib import Path

ARRAYS = pl.SingleConfig(device=pl.devices.SoftBounds(), **PERFECT)


class Tied(nn.Module):
    """A head whose weight is the table of the embedding, as in a language model."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.mix(self.table(ids)).tanh())
        return y


@pytest.fixture
def model() -> Tied:
    torch.manual_seed(0)
    return Tied()


def test_merging_onto_a_tied_weight_leaves_the_other_layer_alone(model: Tied) -> None:
    ids = torch.arange(11)
    adapted = pl.peft.add_adapters(model, rank=2, targets=["head"], config=ARRAYS, seed=1)
    head: Any = adapted.head
    head.set_factors(0.3 * torch.randn(11, 2), 0.3 * torch.randn(2, 6))
    assert (adapted(ids) - model(ids)).abs().max() > 0.1
    with pytest.warns(UserWarning, match=r"weight of 'head' was that of another layer too"):
        merged = pl.peft.merge_adapters(adapted)
    torch.testing.assert_close(merged(ids), adapted(ids), rtol=1e-5, atol=1e-5)
    assert torch.equal(merged.table.weight, model.table.weight)
    assert merged.head.weight is not merged.table.weight


def test_a_file_may_repeat_the_tied_weight_of_the_model(model: Tied, tmp_path: Path) -> None:
    """Like PEFT's files of adapters on tied heads."""
    adapted = pl.peft.add_adapters(model, rank=2, targets=["head"], config=ARRAYS, seed=1)
    head: Any = adapted.head
    head.set_factors(0.3 * torch.randn(11, 2), 0.3 * torch.randn(2, 6))
    pl.peft.save_adapter(adapted, tmp_path)
    kept = tmp_path / "adapter_model.safetensors"
    save_file(
        load_file(kept) | {"base_model.model.head.base_layer.weight": model.head.weight.detach()},
        kept,
    )
    loaded = pl.peft.load_adapter(model, tmp_path, config=ARRAYS, seed=1).model
    torch.testing.assert_close(
        loaded(torch.arange(11)), adapted(torch.arange(11)), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("mode", ["analog_base", "analog_base_digital_adapter"])
def test_a_tied_weight_has_no_array_of_its_own(mode: str, model: Tied) -> None:
    with pytest.raises(ValueError, match=r"layer 'head': its weight is that of another layer too"):
        pl.peft.add_adapters(model, mode, rank=2, targets=["head"])


def test_a_layer_alone_has_no_name_for_a_file(tmp_path: Path) -> None:
    alone = GatedAdapter(nn.Linear(6, 4), 2)
    with pytest.raises(ValueError, match=r"model is a GatedAdapter itself"):
        pl.peft.save_adapter(alone, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_merged_model_has_the_type_that_it_had(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)).to(dtype)
    x = torch.randn(4, 6, dtype=dtype)
    for mode, given in (
        ("digital_base", {"config": ARRAYS}),
        ("analog_base_digital_adapter", {"base_config": ARRAYS}),
    ):
        adapted = pl.peft.add_adapters(model, mode, rank=2, seed=1, **given)
        merged = pl.peft.merge_adapters(adapted)
        assert {each.dtype for each in merged.parameters()} == {dtype}
        torch.testing.assert_close(merged(x), adapted(x), rtol=0.05, atol=0.05)


def test_layers_that_look_at_a_weight_do_not_pass_the_adapter_by() -> None:
    """torch's encoder has a fast path in evaluation, which multiplies by the weights themselves."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    adapted = pl.peft.add_adapters(encoder, rank=2, config=ARRAYS, seed=1).eval()
    first: Any = adapted.linear1
    first.set_factors(0.3 * torch.randn(32, 2), 0.3 * torch.randn(2, 16))
    x = torch.randn(2, 3, 16)
    plain = adapted(x)
    with torch.no_grad():
        assert torch.equal(adapted(x), plain)
    assert (plain - encoder.eval()(x)).abs().max() > 0.01
    assert first.weight.dtype == torch.float32
    assert torch.equal(first.weight.clone(), encoder.linear1.weight)
    assert torch.equal(first.bias.clone(), encoder.linear1.bias)
    with pytest.raises(RuntimeError, match="so the adapter would be left out"):
        nn.functional.linear(x, first.weight)
    with pytest.raises(RuntimeError, match=r"write to layer\.base\.weight"):
        first.weight.zero_()
    own = GatedAdapter(nn.Linear(6, 4, bias=False), 2)
    assert own.bias is None
    assert "weight" not in dict(own.named_parameters())
