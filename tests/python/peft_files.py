"""Helpers for tests of PEFT's files: a model with both layouts of weights, and its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import nn

import pulsora as pl
from conftest import PERFECT

if TYPE_CHECKING:
    from pathlib import Path

CELLS = pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0, w_max=2.0, w_min=-2.0)
ARRAYS = pl.SingleConfig(device=CELLS, **PERFECT)
LRTT = pl.LRTTConfig(rank=2, visible=CELLS, fast=CELLS, transfer_every=0, **PERFECT)
MODES: dict[str, dict[str, Any]] = {
    "digital_base": {"config": ARRAYS},
    "analog_base": {"config": LRTT},
    "analog_base_digital_adapter": {"base_config": ARRAYS},
}


class Conv1D(nn.Module):
    """A Conv1D like transformers' own."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight = nn.Parameter(0.3 * torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x @ self.weight + self.bias
        return y


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.ModuleDict({"q_proj": nn.Linear(6, 8), "mix": Conv1D(5, 8)})
        self.head = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block["mix"](torch.tanh(self.block["q_proj"](x)))
        y: torch.Tensor = self.head(x)
        return y


def inputs(device: str = "cpu") -> torch.Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).to(device)


SHAPES = {"block.q_proj": (8, 6), "block.mix": (5, 8)}


def write_file(folder: Path, seed: int = 2, **settings: Any) -> dict[str, torch.Tensor]:
    """Files as PEFT writes them, and the changes of the weights that they stand for."""
    values = {
        "peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "mix"],
        "rank_pattern": {"mix": 3}, "alpha_pattern": {r"block\.q_proj": 5}, "fan_in_fan_out": True,
        "lora_dropout": 0.0, "bias": "none", "use_rslora": False, "use_dora": False,
    }  # fmt: skip
    values |= settings
    rng = torch.Generator().manual_seed(seed)
    tensors, deltas = {}, {}
    for name, (out, into) in SHAPES.items():
        rank, alpha = (3, 3.0) if name == "block.mix" else (2, 5.0)
        a = 0.2 * torch.randn(out, rank, generator=rng)
        b = 3.0 * torch.randn(rank, into, generator=rng)
        tensors[f"base_model.model.{name}.lora_A.weight"] = b
        tensors[f"base_model.model.{name}.lora_B.weight"] = a
        deltas[name] = alpha / (rank**0.5 if values["use_rslora"] else rank) * a @ b
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(values))
    save_file(tensors, folder / "adapter_model.safetensors")
    return deltas


def changed(model: Net, deltas: dict[str, torch.Tensor]) -> Net:
    """The model with changes added to its weights."""
    torch.manual_seed(0)
    made = Net()
    made.load_state_dict(model.state_dict())
    with torch.no_grad():
        made.block["q_proj"].weight += deltas["block.q_proj"]
        made.block["mix"].weight += deltas["block.mix"].T
    return made
