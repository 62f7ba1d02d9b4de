"""Files and results of PEFT and of Pulsora compared; needs peft and transformers."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

import pulsora as pl
from conftest import PERFECT
from transformer_models import gpt2 as small_gpt2
from transformer_models import llama as small_llama

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

peft: Any = pytest.importorskip("peft")

CELLS = pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0)
ARRAYS = pl.SingleConfig(device=CELLS, **PERFECT)
MODES: dict[str, dict[str, Any]] = {
    "digital_base": {"config": ARRAYS},
    "analog_base": {
        "config": pl.LRTTConfig(visible=CELLS, fast=CELLS, transfer_every=0, **PERFECT)
    },
    "analog_base_digital_adapter": {"base_config": ARRAYS},
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to:UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def gpt2() -> nn.Module:
    return small_gpt2(layers=2)


def llama() -> nn.Module:
    return small_llama(layers=2)


LORA: dict[Callable[[], nn.Module], dict[str, Any]] = {
    gpt2: {
        "target_modules": ["c_attn", "mlp.c_proj"], "fan_in_fan_out": True,
        "rank_pattern": {"h.1.attn.c_attn": 5}, "alpha_pattern": {"mlp.c_proj": 3},
    },
    llama: {"target_modules": ["q_proj", "down_proj"], "use_rslora": True},
}  # fmt: skip


def ids(device: str = "cpu") -> torch.Tensor:
    return torch.randint(40, (3, 8), generator=torch.Generator().manual_seed(1)).to(device)


def lora(build: Callable[[], nn.Module], folder: Path) -> nn.Module:
    """A model with an adapter of PEFT that changes it, saved to a folder."""
    model: Any = peft.get_peft_model(
        build(), peft.LoraConfig(r=3, lora_alpha=6, task_type="CAUSAL_LM", **LORA[build])
    )
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0.0, 0.3)
    model.eval().save_pretrained(folder)
    made: nn.Module = model
    return made


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("build", list(LORA), ids=lambda build: build.__name__)
def test_logits_are_those_of_peft_and_its_files_go_there_and_back(
    build: Callable[[], nn.Module], mode: str, tmp_path: Path, device: str
) -> None:
    theirs = lora(build, tmp_path / "theirs").to(device)
    ours, report = pl.peft.load_adapter(
        build().to(device), tmp_path / "theirs", mode, seed=1, threads=1, **MODES[mode]
    )
    expected = theirs(input_ids=ids(device)).logits
    assert (expected - build().to(device)(input_ids=ids(device)).logits).abs().max() > 0.05
    torch.testing.assert_close(ours(input_ids=ids(device)).logits, expected, rtol=0.0, atol=1e-5)
    assert report.error < 1e-5
    pl.peft.save_adapter(ours, tmp_path / "ours", task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PEFT warns of missing and unexpected names
        warnings.filterwarnings("ignore", "fan_in_fan_out is set to")
        warnings.filterwarnings("ignore", category=FutureWarning)
        again = peft.PeftModel.from_pretrained(build().to(device), tmp_path / "ours").eval()
    torch.testing.assert_close(again(input_ids=ids(device)).logits, expected, rtol=0.0, atol=1e-5)
    merged = pl.peft.merge_adapters(ours)
    torch.testing.assert_close(merged(input_ids=ids(device)).logits, expected, rtol=0.0, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"lora_bias": True}, "lora_bias"),
        ({"lora_dropout": 0.1}, "lora_dropout"),
        ({"target_parameters": ["mlp.down_proj.weight"]}, "target_parameters"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_peft_saves_and_has_no_meaning_here_is_refused_by_name(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = peft.get_peft_model(llama(), peft.LoraConfig(target_modules=["q_proj"], **settings))
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        pl.peft.load_adapter(llama(), tmp_path)


def test_peft_adapts_analog_layers_that_are_registered(tmp_path: Path, device: str) -> None:
    analog = pl.convert_to_analog(llama().to(device), ARRAYS, seed=1, threads=1, weight_scaling=0.3)
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "o_proj"])
    model = peft.get_peft_model(analog, pl.peft.register(config))
    layer = analog.model.layers[0].self_attn.q_proj
    assert type(layer).__name__ == "AnalogLora"
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == 8
    optimizer = torch.optim.Adam(trained, lr=0.05)
    weights = layer.base_layer.weight.clone()
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = model(input_ids=ids(device), labels=ids(device)).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.01
    assert torch.equal(layer.base_layer.weight.clone(), weights)
    model.eval().save_pretrained(tmp_path)
    logits = model(input_ids=ids(device)).logits
    # The file is one for our own reader, too.
    digital, _ = pl.peft.load_adapter(
        llama().to(device), tmp_path, "analog_base_digital_adapter", base_config=ARRAYS,
    )  # fmt: skip
    torch.testing.assert_close(digital(input_ids=ids(device)).logits, logits, rtol=0.0, atol=1e-5)
    delta = layer.get_delta_weight("default")
    layer.merge()
    torch.testing.assert_close(layer.base_layer.weight.clone(), weights + delta)
    torch.testing.assert_close(model(input_ids=ids(device)).logits, logits, rtol=0.0, atol=1e-4)
    layer.unmerge()
    torch.testing.assert_close(layer.base_layer.weight.clone(), weights)
    merged = model.merge_and_unload()
    assert isinstance(merged.model.layers[0].self_attn.q_proj, pl.nn.AnalogLinear)
    torch.testing.assert_close(merged(input_ids=ids(device)).logits, logits, rtol=0.0, atol=1e-4)


def test_registration_refuses_what_it_cannot_serve() -> None:
    with pytest.raises(TypeError, match=r"config = dict: give a peft.LoraConfig"):
        pl.peft.register({})
    analog = pl.convert_to_analog(llama(), ARRAYS, seed=1, threads=1)
    config = pl.peft.register(peft.LoraConfig(target_modules=["q_proj"], use_dora=True))
    with pytest.raises(ValueError, match="use_dora"):
        peft.get_peft_model(analog, config)
