"""The runs of lrtt_study.py, by name of their grid."""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any, TypeAlias

import pulsora as pl
from pulsora import presets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsora.config import TileConfig
    from pulsora.devices import Device

Setting: TypeAlias = dict[str, Any]
"""Settings of a run by name.

Always: lr, epochs, seed. Optional: network ("mlp" by default), batch (64 by default), images (all
of the training set by default). Visible and, for an adapter, fast: names of presets. Default:
"pulses", "adapter", with defaults for all that is not an entry, or "reads", an array of exact
weights that is read as that of an adapter. Other entries are settings of LRTTConfig, except
`filling` (deviation of B in units of the reach of its cells), `enlarged` (the s of
docs/reference/lrtt.md), `b_speed` (a factor on the automatic learning rate of B) and `cells`
(changes of the parameters of fast cells).
"""

VISIBLE = (
    "Idealized", "EcRam", "EcRamMO", "Capacitor", "SixT1C", "GokmenVlasov", "ReRamSB", "ReRamES",
)  # fmt: skip
_OF_THE_RUN = (
    "lr",
    "epochs",
    "seed",
    "network",
    "batch",
    "images",
    "visible",
    "fast",
    "cells",
    "default",
)
HEADLINE = ("EcRam", "ReRamSB", "ReRamES")


def setting(**changes: Any) -> Setting:
    """The settings of every run."""
    return {"lr": 0.1, "epochs": 5, "seed": 1} | changes


def key_of(chosen: Setting) -> str:
    """The text by which runs are told apart."""
    return json.dumps(chosen, sort_keys=True)


def fast_cells(chosen: Setting) -> Device:
    """The cells of A and B."""
    return presets.device(chosen["fast"]).replace(**chosen.get("cells", {}))


def config_of(chosen: Setting, inputs: int) -> TileConfig | None:
    """The configuration of a layer's tiles; None for floating point."""
    if "visible" not in chosen:
        return None
    visible = presets.device(chosen["visible"])
    if chosen.get("default") == "pulses":
        return pl.SingleConfig(device=visible)
    given = {k: v for k, v in chosen.items() if k not in _OF_THE_RUN}
    if chosen.get("default") == "adapter":
        fast = {"fast": fast_cells(chosen)} if "fast" in chosen else {}
        return pl.LRTTConfig(visible=visible, **fast, **given)
    if chosen.get("default") == "reads":
        like = pl.LRTTConfig(visible=visible)
        return pl.IdealConfig(forward=like.forward, backward=like.backward)
    around = {"forward": presets.io(), "backward": presets.io()}
    if "fast" not in chosen:
        return pl.SingleConfig(device=visible, **around)
    fast = fast_cells(chosen)
    if "filling" in chosen:  # the sizes of B and A, and what follows from them
        reach = min(fast.w_max, -fast.w_min)
        spread = given.pop("filling") * reach
        alpha = 1 / (math.sqrt(chosen["rank"]) * spread * given.pop("enlarged"))
        gain = spread / math.sqrt(2 / inputs)
        speed = given.pop("b_speed", 1.0)
        given |= {"ab_lr_scale": "matched", "lora_alpha": alpha, "reinit_gain": gain}
        given["b_lr"] = speed * alpha * (gain / 0.5) ** 2
    return pl.LRTTConfig(visible=visible, fast=fast, **(around | given))


def adapter(**changes: Any) -> Setting:
    """Settings of a run with an adapter, with the defaults before the last of these grids."""
    base = {
        "rank": 16, "fast": "SixT1C", "filling": 0.35, "enlarged": 16.0, "b_speed": 0.25,
        "units_in_mbatch": True, "transfer_every": 1000, "reinit": "decay",
        "transfer_mode": "verified",
    }  # fmt: skip
    return setting(**(base | changes))


def baselines() -> Iterator[Setting]:
    """Floating point, and full-rank pulses on every preset."""
    yield setting()
    for visible in VISIBLE:
        yield setting(visible=visible)


def defaults() -> Iterator[Setting]:
    """Every preset with default settings and periphery: pulses, and adapters of both ranks."""
    for seed in (1, 2, 3):
        yield setting(seed=seed)
        for visible in VISIBLE:
            yield setting(visible=visible, default="pulses", seed=seed)
            yield setting(visible=visible, default="adapter", seed=seed)
            yield setting(visible=visible, default="adapter", rank=16, seed=seed)


def gauge() -> Iterator[Setting]:
    """How large A and B are best, and how fast B learns."""
    for enlarged, filling, speed, visible in itertools.product(
        (8.0, 16.0), (0.2, 0.35), (0.25, 1.0), ("EcRam", "ReRamSB", "ReRamES")
    ):
        yield adapter(visible=visible, enlarged=enlarged, filling=filling, b_speed=speed)
    for visible in ("ReRamSB", "ReRamES"):
        yield adapter(visible=visible, transfer_mode="lossless")


def cycle() -> Iterator[Setting]:
    """How long a cycle is best, and what is kept of B."""
    for visible, reinit, every in itertools.product(
        ("EcRam", "ReRamSB"), ("decay", "keep_b"), (300, 1000, 3000)
    ):
        yield adapter(visible=visible, transfer_every=every, reinit=reinit)


def partner() -> Iterator[Setting]:
    """Different cells as fast arrays."""
    for visible in VISIBLE:
        yield adapter(visible=visible)
    for cell, scales in {
        "Idealized": (2.0, 4.0), "EcRam": (8.0, 16.0), "EcRamMO": (2.0, 4.0),
        "GokmenVlasov": (8.0, 16.0),
    }.items():  # fmt: skip
        for enlarged in scales:
            yield adapter(visible=cell, fast=cell, enlarged=enlarged)
    yield adapter(visible="Capacitor", fast="Capacitor", enlarged=8.0, transfer_every=100)


def itself() -> Iterator[Setting]:
    """ReRAM as A and B, outside of the forward."""
    for reinit, enlarged, every in itertools.product(("decay", "kaiming"), (3.0, 10.0), (100, 300)):
        yield adapter(visible="ReRamSB", fast="ReRamSB", enlarged=enlarged, filling=0.2,
                      transfer_every=every, reinit=reinit, forward_inject=False)  # fmt: skip


def accumulated() -> Iterator[Setting]:
    """Whole pulses for accumulated gradients: on every preset, and with ReRAM as fast arrays."""
    for seed in (1, 2, 3):
        own = {"default": "adapter", "ab_update": "accumulated", "seed": seed}
        for cell in ("ReRamSB", "ReRamES"):
            yield setting(visible=cell, fast=cell, **own)
        for visible in reversed(VISIBLE):
            yield setting(visible=visible, **own)


ASYMMETRIC: tuple[Setting, ...] = (
    {},
    {"reference": "symmetric_point"},
    {"reference": "symmetric_point", "reference_pulses": 1000},
    {"chopper": "reinit"},
    {"reference": "symmetric_point", "chopper": "reinit"},
)


def asymmetric() -> Iterator[Setting]:
    """References and choppers where all arrays are ReRAM.

    Fast cells are as in the presets, lean either way, or all lean one way.
    """
    kinds: tuple[tuple[str, dict[str, float]], ...] = (
        ("ReRamSB", {}), ("ReRamES", {}), ("ReRamSB", {"up_down_dtod": 0.3}),
        ("ReRamSB", {"up_down": 0.5}),
    )  # fmt: skip
    for rate, update, (cell, lean), ways in itertools.product(
        (0.1, 0.2), ("sample", "accumulated"), kinds, ASYMMETRIC
    ):
        own = {"visible": cell, "fast": cell, "default": "adapter", "lr": rate, "ab_update": update}
        changes: Setting = {"cells": lean} if lean else {}
        yield setting(**own, **changes, **ways)


RATES = (0.025, 0.05, 0.1, 0.2, 0.4)


def rates() -> Iterator[Setting]:
    """The best learning rate of each algorithm, on every preset."""
    for rate in RATES:
        yield setting(lr=rate)
        for visible in VISIBLE:
            yield setting(visible=visible, default="pulses", lr=rate)
            yield setting(visible=visible, default="adapter", lr=rate)
            yield setting(visible=visible, default="adapter", ab_update="accumulated", lr=rate)


def ten() -> Iterator[Setting]:
    """Ten epochs instead of five, where plain pulses do worst and on a good device."""
    for rate in (0.05, 0.1, 0.2, 0.4, 0.8):
        yield setting(epochs=10, lr=rate)
        for visible, default in itertools.product(HEADLINE, ("pulses", "adapter")):
            yield setting(epochs=10, visible=visible, default=default, lr=rate)


def networks() -> Iterator[Setting]:
    """The best learning rates of a convolutional network and of a transformer."""
    rates = (0.05, 0.1, 0.2, 0.4)
    pairs = [("lenet", 0.025), *itertools.product(("lenet", "transformer"), rates)]
    for network, rate in pairs:
        yield setting(network=network, lr=rate)
        yield setting(network=network, visible="EcRam", default="reads", lr=rate)
        for visible in HEADLINE:
            yield setting(network=network, visible=visible, default="pulses", lr=rate)
            yield setting(network=network, visible=visible, default="adapter", lr=rate)


def verified() -> Iterator[Setting]:
    """The networks with program and verify: defaults, accumulated updates, and exact weights."""
    for network, rate in itertools.product(("transformer", "lenet"), (0.05, 0.1, 0.2, 0.4)):
        yield setting(network=network, visible="EcRam", default="reads", lr=rate)
        for visible in HEADLINE:
            cells = {"network": network, "visible": visible, "default": "adapter", "lr": rate}
            yield setting(**cells)
            yield setting(**cells, ab_update="accumulated")


def steps() -> Iterator[Setting]:
    """Large learning rates with and without a limit of the steps of A and B, on fewer images."""
    lenet: Setting = {"network": "lenet", "images": 6000, "epochs": 2, "default": "adapter"}
    small: Setting = {"network": "small", "images": 30000, "epochs": 3, "default": "adapter"}
    exact: Setting = {
        "update": {"pulse_type": "none"},
        "forward": {"is_perfect": True},
        "backward": {"is_perfect": True},
    }
    runaway = {"lr": 0.4, "visible": "EcRam"} | lenet
    for changes in ({}, exact, {"ab_update": "accumulated"}, {"ab_desired_bl": 255}, {"b_lr": 0.0}):
        yield setting(**runaway, ab_step_limit=0, **changes)
    for limit in (0.5, 1, 2):
        yield setting(**runaway, ab_step_limit=limit)
    for seed, rate, visible, limit in itertools.product(
        (1, 2, 3), (0.1, 0.2, 0.4), HEADLINE, (0, 1)
    ):
        yield setting(**lenet, lr=rate, visible=visible, ab_step_limit=limit) | {"seed": seed}
    for visible, (rate, limit) in itertools.product(HEADLINE, ((0.1, 0), (0.4, 1))):
        yield setting(**lenet, lr=rate, visible=visible, ab_step_limit=limit, transfer_every="auto")
    for seed, rate, limit in itertools.product((1, 2, 3), (0.1, 0.2, 0.4, 0.8), (0, 1)):
        yield setting(**small, lr=rate, visible="EcRam", ab_step_limit=limit) | {"seed": seed}
    short = small | {"images": 12000, "epochs": 2}
    for rate, limit in itertools.product((0.1, 0.2, 0.4, 0.8), (0, 1)):
        yield setting(**short, lr=rate, visible="EcRam", ab_step_limit=limit)
    for network, (rate, limit) in itertools.product((lenet, small, short), ((0.1, 4), (0.2, 2))):
        yield setting(**network, lr=rate, visible="EcRam", ab_step_limit=limit)
    for seed, rate, network in itertools.product((1, 2, 3), (0.1, 0.2, 0.4, 0.8), (lenet, small)):
        own = {name: network[name] for name in ("network", "images", "epochs")}
        yield setting(**own, lr=rate) | {"seed": seed}


def origin() -> Iterator[Setting]:
    """The best published setting beside the defaults at rank 16: same cells, epochs and schedule.

    That setting: adapters that act through transfers alone, B orthogonal and never trained, rank
    128, W written exactly.
    """
    theirs: Setting = {
        "rank": 128, "forward_inject": False, "reinit": "orthogonal", "reinit_gain": 0.1,
        "b_lr": 0.0,
        "ab_lr_scale": "alpha", "transfer_every": 100, "transfer_mode": "exact",
    }  # fmt: skip
    for rate, own in itertools.product(
        (0.05, 0.1, 0.2, 0.4), (theirs, {"rank": 16}, {"rank": 16, "transfer_mode": "exact"})
    ):
        cells = {"visible": "Idealized", "fast": "SixT1C", "default": "adapter"}
        run = {"network": "one", "batch": 128, "epochs": 30, "lr": rate}
        for seed in (1, 2, 3) if rate == 0.1 else (1,):
            yield setting(**run, **cells, **own) | {"seed": seed}
    for rate in (0.05, 0.1, 0.2, 0.4):
        yield setting(network="one", batch=128, epochs=30, lr=rate)


def best(results: list[dict[str, Any]]) -> Iterator[Setting]:
    """Seeds 2 and 3 at the best learning rate of seed 1, for each algorithm that was run."""
    found: dict[str, dict[str, Any]] = {}
    for result in results:
        chosen = result["setting"]
        kind = key_of({k: v for k, v in chosen.items() if k not in {"lr", "seed"}})
        is_whole = "visible" not in chosen or chosen.get("default") is not None
        if chosen["seed"] != 1 or "accuracy" not in result or not is_whole:
            continue
        if kind not in found or result["accuracy"][-1] > found[kind]["accuracy"][-1]:
            found[kind] = result
    for result in found.values():
        for seed in (2, 3):
            yield result["setting"] | {"seed": seed}


GRIDS: dict[str, Callable[[], Iterator[Setting]]] = {
    grid.__name__: grid
    for grid in (
        baselines,
        defaults,
        gauge,
        cycle,
        partner,
        itself,
        accumulated,
        asymmetric,
        rates,
        ten,
        networks,
        verified,
        steps,
        origin,
    )
}
