"""Small models of transformers, made from configs; where it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from torch import nn

transformers: Any = pytest.importorskip("transformers")

SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}


def gpt2(layers: int = 1) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=40, n_positions=16, n_embd=16, n_layer=layers, n_head=2, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model.eval()


def llama(layers: int = 1) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **SMALL, num_hidden_layers=layers, vocab_size=40, max_position_embeddings=16,
        num_key_value_heads=1, pad_token_id=0,
    )  # fmt: skip
    model: nn.Module = transformers.LlamaForCausalLM(config)
    return model.eval()


def bert() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        **SMALL, num_hidden_layers=1, vocab_size=40, max_position_embeddings=16, num_labels=3
    )
    model: nn.Module = transformers.BertForSequenceClassification(config)
    return model.eval()


def vit() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        **SMALL, num_hidden_layers=1, image_size=8, patch_size=4, num_channels=1, num_labels=3
    )
    model: nn.Module = transformers.ViTForImageClassification(config)
    return model.eval()
