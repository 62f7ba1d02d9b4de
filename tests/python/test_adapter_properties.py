"""Random models with adapters: files, merges, conversions and copies compute the same, or refuse.

Every draw is a model of some kind, with adapters in some mode, or put by hand on a digital or an
analog base, with hooks, gates, learned scales, several tiles and parameters that were trained
beside. Outputs are compared on random inputs.
"""

from __future__ import annotations

import copy
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import PERFECT, repetitions
from peft_files import Conv1D

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("safetensors")

FEATURES, WIDTH, CLASSES = 8, 8, 3
CELLS = pl.devices.ConstantStep(
    w_max_dtod=0.0, w_min_dtod=0.0, w_max=2.0, w_min=-2.0, dw_min_std=0.0, dw_min_dtod=0.0
)
ARRAYS = pl.SingleConfig(device=CELLS, **PERFECT)


class Half(nn.Linear):
    """A layer that computes something else with its weight than x W^T + bias."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * super().forward(x)


RECURRENT: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
KINDS = ["linear", "convolution", "images", *RECURRENT, "transformer"]


class Net(nn.Module):
    """A body of some kind, a fully connected layer of some kind, and a head with a scale."""

    def __init__(self, kind: str, inner: nn.Module) -> None:
        super().__init__()
        self.kind = kind
        self.body: nn.Module
        if kind == "convolution":
            self.body = nn.Conv1d(1, WIDTH, 3, padding=1)
        elif kind == "images":
            self.body = nn.Conv2d(
                1, 2 * WIDTH // 4, (3, 3), (1, 2), (1, 1), padding_mode="circular"
            )
        elif kind in RECURRENT:
            self.body = RECURRENT[kind](FEATURES, WIDTH // 2, batch_first=True, bidirectional=True)
        elif kind == "transformer":
            layer = nn.TransformerEncoderLayer(WIDTH, 2, WIDTH, dropout=0.0, batch_first=True)
            self.body = nn.Sequential(nn.Linear(FEATURES, WIDTH), layer)
        else:
            self.body = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh())
        self.inner = inner
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.scale = nn.Parameter(torch.ones(CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "convolution":
            h = self.body(x[:, :1]).mT
        elif self.kind == "images":  # [m, 4, 5, 4], of which two channels are features
            h = self.body(x[:, None])[:, :2].movedim(1, 3).flatten(2)
        else:
            h = self.body(x)
            h = h[0] if isinstance(h, tuple) else h
        y: torch.Tensor = self.head(torch.tanh(self.norm(self.inner(h)))) * self.scale
        return y


HOOKS: dict[str, Callable[[nn.Module], object]] = {
    "none": lambda _: None,
    "look": lambda layer: layer.register_forward_hook(lambda *_: None),
    "double": lambda layer: layer.register_forward_hook(lambda _l, _x, y: 2.0 * y),
    "shift": lambda layer: layer.register_forward_hook(lambda _l, _x, y: y + 1.0),
    "before": lambda layer: layer.register_forward_pre_hook(lambda _l, x: (0.7 * x[0],)),
    "named": lambda layer: layer.register_forward_hook(
        lambda _l, _x, _named, y: 3.0 * y, with_kwargs=True
    ),
    "gradient": lambda layer: layer.register_full_backward_hook(lambda *_: None),
}


def lrtt(**more: Any) -> pl.LRTTConfig:
    settings: dict[str, Any] = {"rank": 2, "transfer_every": 0, **PERFECT}
    return pl.LRTTConfig(visible=CELLS, fast=CELLS, **settings | more)


def options_of(draw: random.Random, *, is_analog: bool) -> dict[str, Any]:
    """Options of arrays; several tiles in a third of the draws."""
    made: dict[str, Any] = {"threads": 1}
    if draw.random() < 0.33:
        made |= {"max_input_size": draw.choice([3, 5]), "max_output_size": draw.choice([0, 4])}
    if is_analog:
        made["digital_bias"] = draw.random() < 0.6
        made["scaling_per"] = draw.choice(["layer", "output"])
        made["learn_out_scaling"] = draw.random() < 0.3
    return made


def gate_of(draw: random.Random, adapters: int) -> nn.Module | float | list[float] | None:
    gates: list[nn.Module | float | list[float] | None] = [
        None,
        draw.choice([0.0, -1.0, 0.5]),
        [draw.uniform(-1.0, 1.0) for _ in range(adapters)],
        pl.nn.TaskGate(adapters),
        pl.nn.MixtureGate(adapters),
        pl.nn.LearnedGate(WIDTH, adapters),
    ]
    return draw.choice([None, *gates])


def drawn(seed: int) -> tuple[nn.Module, nn.Module, str]:
    """A model without adapters, the same with adapters that have been trained, and its kind."""
    draw = random.Random(seed)  # noqa: S311 - no secrets
    torch.manual_seed(seed)
    inner_kind = draw.choice(["linear", "linear", "linear", "conv1d", "half", "norm"])
    inner = {
        "linear": lambda: nn.Linear(WIDTH, WIDTH, bias=draw.random() < 0.8),
        "conv1d": lambda: Conv1D(WIDTH, WIDTH),
        "half": lambda: Half(WIDTH, WIDTH),
        "norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    }[inner_kind]()
    kind = draw.choice(KINDS)
    plain: nn.Module = Net(kind, inner)
    mode = draw.choice(
        ["digital_base", "analog_base", "analog_base", "analog_base_digital_adapter", "lrtt",
         "beside", "own", "own analog", "own tiles"]
    )  # fmt: skip
    hook = draw.choice(["none", "none", *HOOKS])
    HOOKS[hook](plain.inner)  # type: ignore[arg-type]
    adapters = draw.choice([1, 1, 2])
    gate = gate_of(draw, adapters)
    chosen = (
        ["head"]
        if inner_kind in {"half", "norm"}
        else draw.choice([["inner"], ["inner", "head"], None])
    )
    beside = draw.choice([(), (), ("norm",), ("inner",), ("body", "norm"), ("head",)])
    given: dict[str, Any] = {"seed": seed, "gate": gate, "adapters": adapters, "rank": 2}
    given |= {"targets": chosen, "trainable": beside}
    if mode == "digital_base":
        made = pl.peft.add_adapters(
            plain, mode, config=ARRAYS, **given, **options_of(draw, is_analog=False)
        )
    elif mode == "analog_base":
        span = draw.choice(["tile", "layer"])
        made = pl.peft.add_adapters(
            plain, mode, **given,
            config=lrtt(adapter_span=span, transfer_every=draw.choice([0, 0, 2])),
            **options_of(draw, is_analog=True),
        )  # fmt: skip
    elif mode == "analog_base_digital_adapter":
        made = pl.peft.add_adapters(
            plain, mode, base_config=ARRAYS, **given, **options_of(draw, is_analog=True)
        )
    elif mode == "beside":
        made = pl.peft.add_adapters(
            plain, "analog_base", adapter_span="layer", config=ARRAYS, base_config=ARRAYS, **given,
            **options_of(draw, is_analog=True),
        )  # fmt: skip
    elif mode == "lrtt":  # all layers analog, trained in their tiles
        made = pl.convert_to_analog(
            plain, lrtt(forward_inject=draw.random() < 0.9), weight_scaling="abs_max",
            exclude=["body"] if draw.random() < 0.5 else [], seed=seed,
            **options_of(draw, is_analog=True),
        )  # fmt: skip
    else:
        made = by_hand(plain, mode, gate, adapters, draw, seed)
    perturb(made, draw)
    if draw.random() < 0.3:
        train(made)
    late = draw.choice(["none", "none", "none", *HOOKS])
    if isinstance(made.inner, pl.nn.GatedAdapter):
        HOOKS[late](draw.choice([made.inner, made.inner, made.inner.base]))  # type: ignore[arg-type]
    return plain, made, f"{seed}: {kind} {inner_kind} {mode} hook {hook} late {late} {beside}"


def by_hand(
    plain: nn.Module,
    mode: str,
    gate: nn.Module | float | list[float] | None,
    adapters: int,
    draw: random.Random,
    seed: int,
) -> nn.Module:
    """A model with a GatedAdapter on a digital or analog base; some of the rest is trained too."""
    made: Any = copy.deepcopy(plain)
    if mode != "own":  # other layers than the base are analog too, in half of the draws
        made = pl.convert_to_analog(
            plain, lrtt(transfer_every=draw.choice([0, 2])) if mode == "own tiles" else ARRAYS,
            exclude=[] if draw.random() < 0.5 else ["body", "head"], seed=seed,
            weight_scaling=draw.choice([None, "abs_max"]), **options_of(draw, is_analog=True),
        )  # fmt: skip
    settings: dict[str, Any] = {"adapters": adapters, "seed": seed}
    if mode == "own tiles" and isinstance(made.inner, pl.nn.AnalogLinear):
        made.inner = pl.nn.GatedAdapter(made.inner, gate=gate, **settings)
    else:
        if draw.random() < 0.4:
            settings |= {"config": ARRAYS, "tile_id": 1000, "threads": 1}
        if draw.random() < 0.5:
            settings["alpha"] = draw.choice([0.5, -1.0, 3.0])
        made.inner = pl.nn.GatedAdapter(made.inner, 2, gate, **settings)
    for part in (made.body, made.inner.base, made.norm, made.head):
        part.requires_grad_(draw.random() < 0.5)
    made.scale.requires_grad_(draw.random() < 0.5)
    return made


@torch.no_grad()
def perturb(model: nn.Module, draw: random.Random) -> None:
    """Changes all that is trained, as training would."""
    for layer in model.modules():
        if isinstance(layer, pl.nn.GatedAdapter) and not layer.in_tiles:
            a, b = layer.factors()
            layer.set_factors(0.3 * torch.randn(a.shape), 0.3 * torch.randn(b.shape))
        elif isinstance(layer, pl.nn.AnalogModule):
            for tile in layer.tiles:
                if tile.adapter is not None:
                    tile.adapter.a = (0.3 * torch.randn(tile.adapter.a.shape)).numpy()
                    tile.adapter.b = (0.3 * torch.randn(tile.adapter.b.shape)).numpy()
    for parameter in model.parameters():
        is_analog = isinstance(parameter, pl.nn.AnalogParameter)
        if parameter.requires_grad and not is_analog and draw.random() < 0.7:
            parameter.add_(0.2 * torch.randn_like(parameter))


@torch.enable_grad()
def train(model: nn.Module) -> None:
    """Four steps, in which adapters may be transferred into their arrays."""
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = pl.optim.AnalogSGD(trained, lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(4, 5, FEATURES)).square().mean().backward()
        optimizer.step()


def saved(
    plain: nn.Module, model: nn.Module, draw: random.Random, folder: Path
) -> tuple[nn.Module, bool]:
    """The model that a file becomes on the model without adapters, and whether it may differ."""
    gates = [each for each in model.modules() if isinstance(each, pl.nn.TaskGate)]
    saving = pl.peft.save_adapter(
        model, folder, base=draw.choice([None, plain]), adapter=0 if gates else None,
        rank=draw.choice([None, None, CLASSES]),
    )  # fmt: skip
    way: dict[str, Any] = draw.choice(
        [
            {"mode": "digital_base", "config": pl.IdealConfig()},
            {"mode": "analog_base_digital_adapter", "base_config": ARRAYS},
            {"mode": "analog_base", "config": lrtt()},
        ]
    )
    loaded, loading = pl.peft.load_adapter(plain, folder, seed=1, threads=1, **way)
    return loaded.eval(), saving.error > 1e-6 or loading.error > 1e-5 or bool(saving.missing)


def restored(seed: int, model: nn.Module) -> nn.Module:
    _, again, _ = drawn(seed)
    with torch.no_grad():
        for parameter in again.parameters():
            if not isinstance(parameter, pl.nn.AnalogParameter):
                parameter.add_(1.0)
    again.load_state_dict(model.state_dict())
    return again


def again(model: nn.Module) -> nn.Module:
    """The model with layers of torch, converted to perfect arrays."""
    return pl.convert_to_analog(pl.convert_to_digital(model), pl.IdealConfig(), threads=1)


def outcome(
    way: Callable[[], tuple[nn.Module, bool]], expected: torch.Tensor, x: torch.Tensor
) -> str:
    """'equal', 'said' if a report says so, or the refusal; else 'WRONG' with the difference."""
    try:
        made, said = way()
    except (ValueError, TypeError) as error:
        return short(error)
    off = float((made(x) - expected).norm() / expected.norm())
    return "equal" if off < 3e-4 else "said" if said else f"WRONG by {off:.1e}"


def short(error: Exception) -> str:
    return re.sub(r"-?\d[-\d.e]*|'[\w.]+'", "_", str(error))[:60]


@pytest.mark.filterwarnings("ignore")
def test_adapters_leave_as_they_are_or_are_refused(tmp_path: Path) -> None:
    whole = repetitions(10_000)
    count = whole if whole == 10_000 else 100  # a tenth of it would take minutes
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(count):
        wrong = one(seed, tmp_path, seen)
        assert not wrong, wrong
    for way in ("file", "merged", "digital", "again"):
        equal = seen[way, "equal"]
        assert equal > 0.2 * count, (way, seen)
    assert seen["copy", "equal"] == seen["state", "equal"]


def one(seed: int, folder: Path, seen: Counter[tuple[str, str]]) -> list[str]:
    """Tries all ways for one model; returns what is wrong."""
    try:
        plain, model, text = drawn(seed)
    except (ValueError, TypeError) as error:
        seen["draw", short(error)] += 1
        return []
    x = torch.randn(4, 5, FEATURES)
    with torch.no_grad():
        expected = model.eval()(x)
        draw = random.Random(seed)  # noqa: S311
        ways: dict[str, Callable[[], tuple[nn.Module, bool]]] = {
            "copy": lambda: (copy.deepcopy(model), False),
            "state": lambda: (restored(seed, model).eval(), False),
            "merged": lambda: (pl.peft.merge_adapters(model), False),
            "digital": lambda: (pl.convert_to_digital(model), False),
            "again": lambda: (again(model), False),
            "file": lambda: saved(plain.eval(), model, draw, folder),
        }
        wrong = []
        for name, way in ways.items():
            result = outcome(way, expected, x)
            seen[name, result] += 1
            if result.startswith("WRONG") or (name in {"copy", "state"} and result != "equal"):
                wrong.append(f"{text}: {name} {result}")
    return wrong
