"""Models of transformers, converted on torch's meta device, with weights that they have saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import pulsora as pl
from conftest import PERFECT, require_same_state

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*lie outside the bounds")
IDEAL = pl.IdealConfig(**PERFECT)


def test_a_model_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    settings = transformers.GPT2Config(vocab_size=17, n_positions=8, n_embd=8, n_layer=2, n_head=2)
    torch.manual_seed(0)
    digital = transformers.GPT2LMHeadModel(settings).eval()
    digital.save_pretrained(tmp_path)
    converted = pl.convert_to_analog(digital, IDEAL, exclude=["lm_head"], seed=1)
    with torch.device("meta"):
        model = transformers.GPT2LMHeadModel(settings).eval()
    model = pl.convert_to_analog(model, IDEAL, exclude=["lm_head"], seed=1, inplace=True)
    pl.load_weights(model, tmp_path)
    require_same_state(model, converted)
    ids = torch.arange(6)[None]
    assert torch.equal(model(ids).logits, converted(ids).logits)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_model_with_buffers_that_are_in_no_file(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    accelerate = pytest.importorskip("accelerate")
    settings = transformers.LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32,
    )  # fmt: skip
    torch.manual_seed(0)
    digital = transformers.LlamaForCausalLM(settings).eval()
    digital.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    options: dict[str, Any] = {"seed": 1, "weight_scaling": "abs_max"}
    converted = pl.convert_to_analog(digital, pl.LRTTConfig(rank=2), **options)
    with torch.device("meta"):
        bare = pl.convert_to_analog(transformers.LlamaForCausalLM(settings), IDEAL)
    with pytest.raises(ValueError, match=r"inv_freq; a model computes such buffers"):
        pl.load_weights(bare, tmp_path)
    with accelerate.init_empty_weights():
        model = transformers.LlamaForCausalLM(settings).eval()
    model = pl.convert_to_analog(model, pl.LRTTConfig(rank=2), inplace=True, **options)
    pl.load_weights(model, tmp_path)
    ids = torch.arange(6)[None]
    assert torch.equal(model(ids).logits, converted(ids).logits)
