"""Reference pages of devices and parameters, and plots of the responses of devices."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from api_stubs import NOTICE, SCHEMA, common_fields, finish, literal
from matplotlib.figure import Figure

import pulsora as pl
from pulsora._internal import parameters
from pulsora.config import CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pulsora._internal.parameters import Field, Parameters


COLUMNS = 120
CELL = 160


def wrapped(text: str, indent: str = "") -> list[str]:
    """Fill a paragraph, or an item of a list if `indent` is that of its further lines."""
    first = f"{indent[:-2]}- " if indent else ""
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(fields: Iterable[Field]) -> Iterator[str]:
    """Yield a table of parameters, and below it the texts that are too long for a cell."""
    notes: list[str] = []
    yield "| parameter | default | unit | range | meaning |"
    yield "|---|---|---|---|---|"
    for field in fields:
        choices = ", ".join(f"`{literal(choice)}`" for choice in field["choices"])
        limits = f"a number or {choices}" if "auto" in field["type"] else choices or field["range"]
        default, meaning = shown_default(field), field["doc"]
        if len(default) > CELL:
            notes += wrapped(f"`{field['name']}` is by default {default}.", "  ")
            default = f"{default.partition('(')[0]}(...)`, below"
        if len(meaning) > CELL:
            notes += wrapped(f"`{field['name']}`: {meaning}", "  ")
            meaning = f"{shortened(meaning)} (more below)"
        meaning = meaning.replace("|", "\\|")
        yield f"| `{field['name']}` | {default} | {field['unit']} | {limits} | {meaning} |"
    yield ""
    if notes:
        yield from notes
        yield ""


def shortened(text: str) -> str:
    """Return the longest beginning of a text, up to a sentence or clause, that fits into a cell."""
    ends = [found.start() for found in re.finditer(r"[.;:,](?= )", text[: CELL - 15])]
    outside = [end for end in ends if text[:end].count("(") == text[:end].count(")")]
    return text[: outside[-1]]


def shown_default(field: Field) -> str:
    if field["type"] == "devices":
        return f"`{list(parameters.default_of(field))!r}`"
    if field["type"] in {"struct", "device", "noise_model"}:
        return f"`{parameters.default_of(field)!r}`"
    return f"`{literal(field['default'])}`"


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def devices_page() -> str:
    models = SCHEMA["devices"]
    common = common_fields()
    lines = [
        "# Device models",
        "",
        f"<!-- {NOTICE} -->",
        "",
        *wrapped(
            "A device model defines the change of a weight by one pulse. `s` is the step of the "
            "cell at weight 0 in the direction of the pulse, `w_max` and `w_min` are its bounds, "
            "`sigma` is `dw_min_std`, and `xi` is a standard normal drawn anew for every pulse. "
            "After every pulse the weight is confined to its bounds. Pulse trains are scaled by "
            "the mean step of both directions at weight 0, so that an update of learning rate lr "
            "moves weights there by lr x d on average; a bound at 0 leaves one direction. A plot "
            "shows the default parameters without spread between devices: pulses up, then down, "
            "without and with cycle noise. [Choose a device](../howto/choose_device.md) compares "
            "the presets."
        ),
        "",
        "## Parameters of every model",
        "",
        *table(common),
    ]
    for name, entry in models.items():
        own = [field for field in entry["fields"] if field not in common]
        members = ", ".join(f"`{member}`" for member in entry["cell"])
        lines += [
            f"## {name}",
            "",
            *wrapped(entry["doc"]),
            "",
            f"![Response of {name}](../images/{snake(name)}.png)",
            "",
            *wrapped(
                f"Sampled once per cell and kept as 16-bit floats: {members}. "
                f"With the weight, a cell takes {4 + 2 * len(entry['cell'])} bytes."
            ),
            "",
            *(table(own) if own else ["It has no parameters of its own.", ""]),
        ]
    lines += ["## Presets", ""]
    listed = pl.devices.DEVICES | pl.devices.ONE_SIDED | pl.devices.COARSE
    for name, preset in listed.items():
        doc = " ".join((preset.__doc__ or "").split())
        if model := model_of(preset):
            lines += wrapped(f"`devices.{name}()`, {model}: {doc}", "  ")
    return finish(lines)


def noise_models_page() -> str:
    models = SCHEMA["noise_models"]
    common = common_fields("noise_models")
    shared = {field["name"] for field in common}
    lines = [
        "# Noise models",
        "",
        f"<!-- {NOTICE} -->",
        "",
        *wrapped(
            "A noise model of [programmed arrays](inference.md) says how a device that was "
            "programmed to a conductance G differs from it, how it drifts, and how its reads "
            "fluctuate. Conductances are in uS, times in s since the end of programming."
        ),
        "",
        "## Parameters of every model",
        "",
        *table(common),
    ]
    for name, entry in models.items():
        own = [field for field in entry["fields"] if field["name"] not in shared]
        lines += [f"## {name}", "", *wrapped(entry["doc"]), ""]
        lines += table(own) if own else ["It has no parameters of its own.", ""]
    return finish(lines)


def model_of(preset: Callable[..., Any]) -> str | None:
    """The model of a preset, or None if this build leaves it out."""
    try:
        return str(preset().model)
    except AttributeError:
        return None


def parameters_page() -> str:
    lines = [
        "# Parameters",
        "",
        f"<!-- {NOTICE} -->",
        "",
        "The parameters of device models are in [device models](devices.md).",
        "",
    ]
    classes: tuple[type[Parameters], ...] = (pl.UpdateParameters, pl.IOParameters)
    for made in (*CLASSES.values(), *classes):
        doc = (made.__doc__ or "").splitlines()[0]
        lines += [f"## {made.__name__}", "", *wrapped(doc), "", *table(made._fields.values())]
    return finish(lines)


def response(model: str, noisy: bool) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The weight of one cell under pulses up until it stays, and as many down, from its middle."""
    device = getattr(pl.devices, model)()
    off = {name: 0.0 for name in device.to_dict() if name.endswith("_dtod")}
    device = device.replace(**off, **({} if noisy else {"dw_min_std": 0.0}))
    config = pl.SingleConfig(device=device, update=pl.UpdateParameters(desired_bl=1))
    tile = pl.Tile(1, 1, config, threads=1)
    x = np.ones(1, np.float32)
    pulses = int(2.0 * (device.w_max - device.w_min) / device.dw_min)
    weights = [0.0]
    for direction in (-1.0, 1.0):
        for _ in range(pulses):
            tile.update(x, np.full(1, direction, np.float32), device.dw_min)
            weights.append(float(tile.weights[0, 0]))
    return np.array(weights, np.float32)


def draw(model: str, path: Path) -> None:
    figure = Figure(figsize=(5.0, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        response(model, noisy=True), color="tab:orange", linewidth=0.8, label="with cycle noise"
    )
    axes.plot(response(model, noisy=False), color="tab:blue", label="mean")
    axes.set(title=model, xlabel="pulses", ylabel="weight")
    axes.legend()
    figure.savefig(path, dpi=120, metadata={"Software": None})
