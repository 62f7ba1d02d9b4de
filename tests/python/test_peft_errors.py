"""Files of PEFT, settings and names that mean nothing here are refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import pulsora as pl
from peft_files import ARRAYS, LRTT, Net, write_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_dora": True}, "use_dora = True normalises"),
        (
            {"init_lora_weights": "pissa"},
            "init_lora_weights = 'pissa' changes the weights of the model as well",
        ),
        ({"init_lora_weights": "olora"}, "init_lora_weights = 'olora' changes the weights"),
        ({"use_rslora": "false"}, "use_rslora = 'false' must be true or false"),
        ({"use_newthing": True}, "use_newthing = True is no setting that is known here"),
        ({"lora_bias": True}, "lora_bias = True gives the adapter a bias"),
        ({"modules_to_save": ["head"]}, r"modules_to_save = \['head'\] brings whole layers"),
        ({"target_parameters": ["x"]}, r"target_parameters = \['x'\]"),
        ({"bias": "all"}, "bias = 'all'"),
        ({"lora_dropout": 0.1}, "lora_dropout = 0.1 leaves out inputs .* without_dropout = True"),
        ({"peft_type": "LOHA"}, "peft_type is 'LOHA'"),
        ({"r": 0}, "the rank r = 0 must be a whole number"),
        (
            {"r": 4},
            r"lora_A \[2, 6\] and lora_B \[8, 2\], but by adapter_config.json its rank is 4",
        ),
        ({"lora_alpha": "x"}, "lora_alpha = 'x' must be a finite number"),
        ({"rank_pattern": {"(": 3}}, "no regular expression"),
        ({"rank_pattern": 3}, "rank_pattern = 3 must be a table"),
    ],
)
def test_settings_without_a_meaning_are_refused_by_name(
    settings: dict[str, Any], message: str, model: Net, tmp_path: Path
) -> None:
    write_file(tmp_path, **settings)
    with pytest.raises(ValueError, match=message):
        pl.peft.load_adapter(model, tmp_path)
    if "lora_dropout" in settings:
        for way in ({"trainable": False}, {"without_dropout": True}):
            assert pl.peft.load_adapter(model, tmp_path, **way).report.error < 0.1


def damage(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "adapter_model.safetensors")
        change(tensors)
        save_file(tensors, folder / "adapter_model.safetensors")

    return apply


FIRST = "base_model.model.block.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda f: (f / "adapter_config.json").unlink(), FileNotFoundError,
         "there is no .*adapter_config.json"),
        (lambda f: (f / "adapter_config.json").write_text("{"), ValueError, "is no JSON"),
        (lambda f: (f / "adapter_config.json").write_text("[]"), ValueError, "peft_type is 'list'"),
        (lambda f: (f / "adapter_model.safetensors").rename(f / "adapter_model.bin"),
         FileNotFoundError, "is a pickle"),
        (lambda f: (f / "adapter_model.safetensors").write_bytes(b"x"), ValueError,
         "no complete safetensors file"),
        (damage(lambda t: t.pop(FIRST)), ValueError, "layer 'block.q_proj' has only lora_B"),
        (damage(lambda t: t.update({"base_model.model.head.weight": torch.ones(3, 5)})), ValueError,
         "more than factors .*head.weight"),
        (damage(lambda t: t.update({"base_model.model.head.base_layer.weight": torch.ones(3, 5)})),
         ValueError, "holds 'head.weight' of the model .* differs"),
        (damage(lambda t: t.update({"base_model.model.tail.base_layer.weight": torch.ones(3, 5)})),
         ValueError, "holds 'tail.weight' .* this model has not"),
        (damage(lambda t: t.update({FIRST: torch.full((2, 6), torch.nan)})), ValueError,
         "not finite"),
        (damage(lambda t: t.update({FIRST: torch.ones(2, 7)})), ValueError,
         r"for \[7, 8\] features .* has \[6, 8\]"),
        (damage(lambda t: t.update({
            k.replace("q_proj", "v_proj"): t.pop(k) for k in list(t) if "q_proj" in k
         })), ValueError, r"no layer 'block.v_proj'|its rank"),
        (damage(lambda t: t.clear()), ValueError, "holds no adapter"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused_by_name(
    spoil: Callable[[Path], None], error: type[Exception], message: str, model: Net, tmp_path: Path
) -> None:
    write_file(tmp_path)
    spoil(tmp_path)
    with pytest.raises(error, match=message):
        pl.peft.load_adapter(model, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "analog"}, "mode = 'analog': write one of 'digital_base', 'analog_base'"),
        ({"mode": "digital_base", "base_config": ARRAYS},
         "base_config does not go with mode = 'digital_base'"),
        ({"mode": "digital_base", "config": LRTT}, "config does not go with mode = 'digital_base'"),
        ({"mode": "analog_base", "config": ARRAYS}, "give an LRTTConfig"),
        ({"mode": "analog_base_digital_adapter", "config": ARRAYS}, "config does not go with"),
        ({"adapter_span": "model"}, "adapter_span = 'model'"),
        ({"targets": ["k_proj"]},
         r"targets has 'k_proj', .* \['block.q_proj', 'block.mix', 'head'\]"),
        ({"exclude": ["k_proj"]}, "exclude has 'k_proj'"),
        ({"targets": lambda *_: False}, "no layer is left"),
        ({"trainable": ["tail"]}, "trainable = 'tail'"),
        ({"weight_scaling": 0.3}, r"\['weight_scaling'\]: these are options of an analog base"),
    ],
)  # fmt: skip
def test_modes_and_names_that_do_not_exist_are_refused(
    settings: dict[str, Any], message: str, model: Net
) -> None:
    with pytest.raises(ValueError, match=message):
        pl.peft.add_adapters(model, **settings)
