"""Files of PEFT, settings and names that mean nothing here are refused by name."""

from __future__ import annotations

import itertools
import json
import random
import re
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import pulsora as pl
from conftest import repetitions
from peft_files import ARRAYS, LRTT, Net, write_file
from pulsora._internal import files
from pulsora.peft.patterns import NamePattern

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
        ({"modules_to_save": ["head"]}, r"by modules_to_save, 'head.weight' was trained, but"),
        ({"target_parameters": ["x"]}, r"target_parameters = \['x'\]"),
        ({"bias": "both"}, "bias = 'both' must be 'none', 'lora_only' or 'all'"),
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
        ({"rank_pattern": {"(?=a)": 3}}, r"'\(\?=a\)'; it has a part .* without a meaning here"),
        ({"rank_pattern": {"r": 0}}, "the rank r = 0 must be"),
        ({"lora_alpha": 10**400}, "lora_alpha = a number of too many digits must be a finite"),
        ({"lora_dropout": -1}, "lora_dropout = -1 must be from 0 to 1"),
        ({"lora_dropout": 2.0}, "lora_dropout = 2.0 must be from 0 to 1"),
    ],
)
def test_settings_without_a_meaning_are_refused_by_name(
    settings: dict[str, Any], message: str, model: Net, tmp_path: Path
) -> None:
    write_file(tmp_path, **settings)
    with pytest.raises(ValueError, match=message):
        pl.peft.load_adapter(model, tmp_path)
    if settings.get("lora_dropout") == 0.1:
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
         "holds 'head.weight' of the model .* differs"),
        (damage(lambda t: t.update({"base_model.model.head.base_layer.weight": torch.ones(3, 5)})),
         ValueError, "holds 'head.weight' of the model .* differs"),
        (damage(lambda t: t.update({"base_model.model.tail.base_layer.weight": torch.ones(3, 5)})),
         ValueError, "more than factors .*'tail.weight', which this model has not"),
        *(
            (damage(lambda t, kind=kind: t.update({FIRST: torch.ones(2, 6).to(kind)})), ValueError,
             f"layer 'block.q_proj' are of type .*{str(kind)[6:]}.*; only floating-point")
            for kind in (torch.int8, torch.uint8, torch.bool, torch.int64, torch.float8_e4m3fn,
                         torch.complex64)
        ),
        (damage(lambda t: t.update({FIRST.removeprefix("base_model.model."): torch.ones(2, 6)})),
         ValueError, "lora_A.weight' under another name, too"),
        (damage(lambda t: t.update({FIRST.replace(".weight", ".default.weight"): t[FIRST] + 1})),
         ValueError, "under another name, too"),
        (lambda f: (f / "adapter_config.json").write_text("[" * 100_000), ValueError,
         "is no JSON .*recursion"),
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


def test_patterns_that_have_many_ways_to_match_take_no_time(tmp_path: Path) -> None:
    name = "a" * 200
    model = torch.nn.Sequential(OrderedDict({name: torch.nn.Linear(3, 4)}))
    pl.peft.save_adapter(pl.peft.add_adapters(model, rank=2, seed=1), tmp_path)
    path = tmp_path / "adapter_config.json"
    patterns = {"(a+)+!": 3, "(((a*)*)*)*!": 3, "(.*)*.*.*.*.*.*!": 3, "a{2,}$": 2}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"r": 9, "rank_pattern": patterns}))
    began = time.monotonic()
    assert pl.peft.load_adapter(model, tmp_path).report[0].rank == 2
    assert time.monotonic() - began < 10.0


def test_patterns_match_as_regular_expressions_do() -> None:
    draw = random.Random(0)  # noqa: S311 - no secrets
    atoms = ["a", "b", r"\.", ".", "[ab]", "[^a]", r"\d", "(a|b)", "(ab|a)", "(a|b|)", "^", "$",
             r"\w", "1", "[0-9]", "(a(b|1)*)"]  # fmt: skip
    counts = ["", "", "", "*", "+", "?", "{2}", "{1,3}", "*?", "{0,2}"]
    matches = 0
    for _ in range(repetitions(50_000)):
        each = [draw.choice(atoms) for _ in range(draw.randint(1, 4))]
        text = draw.choice(["", "", "|"]).join(
            part + draw.choice(counts) * (part not in "^$") for part in each
        )
        name = "".join(draw.choice("ab.1") for _ in range(draw.randint(0, 7)))
        wanted = bool(re.match(rf"(.*\.)?({text})$", name))
        assert NamePattern(text).matches(name) == wanted, (text, name)
        matches += wanted
    assert matches > 500


@pytest.mark.parametrize("call", range(6))
def test_a_save_that_fails_leaves_the_old_adapter_or_none(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operation on files fails once, as on a full disk or when the process is killed."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(4, 4))
    x = torch.randn(3, 4)
    outputs = []
    for alpha in (2.0, 8.0):
        model = pl.peft.add_adapters(plain, rank=2, alpha=alpha, config=pl.IdealConfig(), seed=1)
        model[0].set_factors(torch.randn(4, 2), torch.randn(2, 4))  # type: ignore[index]
        outputs.append(model(x))
        if alpha == 2.0:
            pl.peft.save_adapter(model, tmp_path)
    calls = itertools.count()

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if next(calls) == call:
                raise OSError(28, "No space left on device")
            return real(*args, **kwargs)

        return made

    monkeypatch.setattr(files, "replace_file", failing(files.replace_file))
    monkeypatch.setattr(type(tmp_path), "replace", failing(type(tmp_path).replace))
    monkeypatch.setattr(files.shutil, "copymode", failing(files.shutil.copymode))
    with pytest.raises(OSError, match="No space left"):
        pl.peft.save_adapter(model, tmp_path)
    monkeypatch.undo()
    assert {each.name for each in tmp_path.iterdir()} <= {
        "adapter_config.json", "adapter_model.safetensors"
    }  # fmt: skip
    if call < 4:  # nothing has been replaced
        loaded = pl.peft.load_adapter(plain, tmp_path, config=pl.IdealConfig()).model
        torch.testing.assert_close(loaded(x), outputs[0])
    else:
        with pytest.raises(FileNotFoundError, match=r"there is no .*adapter_config.json"):
            pl.peft.load_adapter(plain, tmp_path)


def test_saving_keeps_links_and_modes_of_files(tmp_path: Path) -> None:
    model = pl.peft.add_adapters(torch.nn.Sequential(torch.nn.Linear(4, 4)), rank=2)
    folder = tmp_path / "adapter"
    pl.peft.save_adapter(model, folder)
    first, blob = folder / "adapter_config.json", tmp_path / "blob"
    first.chmod(0o640)
    first.rename(blob)
    first.symlink_to(blob)
    pl.peft.save_adapter(model, folder)
    assert first.is_symlink()
    assert blob.stat().st_mode & 0o777 == 0o640
    assert json.loads(blob.read_text())["r"] == 2
