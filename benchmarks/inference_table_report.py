"""Table and figure of inference_table.py."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Rows = dict[str, dict[str, Any]]
CONTROL = "plain, global"
SHOWN = (CONTROL, "plain, affine", "HWA, noise model", "LoRA for any chip",
         "LoRA on this chip", "pulsed 6T1C on this chip", "plain, column reference")  # fmt: skip
NAMES = {"deep": "perceptron", "lenet": "LeNet-5", "transformer": "transformer", "gpt": "GPT",
         "resnet": "ResNet"}  # fmt: skip


def _groups(rows: Rows) -> dict[tuple[str, str], dict[str, dict[int, dict[str, Any]]]]:
    """Runs by network and memory, then by method, then by seed."""
    groups: dict[tuple[str, str], dict[str, dict[int, dict[str, Any]]]] = {}
    for row in rows.values():
        if "values" in row:
            group = groups.setdefault((row["network"], row["memory"]), {})
            group.setdefault(row["method"], {})[row["seed"]] = row
    return groups


def difference(
    some: dict[int, dict[str, Any]], control: dict[int, dict[str, Any]]
) -> tuple[float, float]:
    """Mean and standard error of paired differences at the last time, over seeds' means.

    With one seed the error is that over programmings.
    """
    seeds = sorted(set(some) & set(control))
    pairs = []
    for seed in seeds:
        ours, theirs = some[seed]["values"][-1], control[seed]["values"][-1]
        count = min(len(ours), len(theirs))
        pairs.append(np.subtract(ours[:count], theirs[:count]))
    if not pairs:
        return math.nan, math.nan
    samples = np.array([p.mean() for p in pairs]) if len(pairs) > 1 else pairs[0]
    error = samples.std(ddof=1) / math.sqrt(len(samples)) if len(samples) > 1 else math.nan
    return float(samples.mean()), float(error)


def table(rows: Rows, times: Sequence[str], batch: int) -> list[str]:
    """A table in Markdown for each network and memory.

    Scores are means over seeds and programmings; +- is the mean deviation over programmings.
    """
    lines: list[str] = []
    for (network, memory), methods in _groups(rows).items():
        seeds = {seed for some in methods.values() for seed in some}
        scores = [
            row["score"] for key, row in rows.items() if key.startswith(f"{network}|digital|")
        ]
        title = (
            f"{network} on {memory}, seeds {sorted(seeds)}, mini-batches of {batch}; "
            f"digital {np.mean(scores):.2f}"
        )
        lines += [
            title,
            "",
            "| method | lr | trained numbers | steps | pulses | "
            + " | ".join(times) + " | difference |",
            "|---" * (len(times) + 6) + "|",
        ]  # fmt: skip
        for method, some in methods.items():
            first = next(iter(some.values()))
            values = [np.array(row["values"]) for row in some.values()]
            means = np.mean([v.mean(1) for v in values], axis=0)
            spread = np.mean([v.std(1, ddof=1) for v in values], axis=0)
            shown = [f"{m:.2f} ± {s:.2f}" for m, s in zip(means, spread, strict=True)]
            mean, error = difference(some, methods.get(CONTROL, {}))
            cells = [
                method, f"{first['lr']:g}" if first["lr"] else "",
                *(str(first[name] or "") for name in ("parameters", "steps", "pulses")),
                *shown, "" if method == CONTROL else f"{mean:+.2f} ± {error:.2f}",
            ]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return lines


def compact(
    rows: Rows, networks: Sequence[str], memories: Sequence[str], methods: Sequence[str]
) -> list[str]:
    """A table in Markdown for each memory, with two columns for each network.

    The first has the scores at the first and the last time, with the number of seeds in brackets
    where other cells have more; the second has the paired difference to "plain, global".
    """
    groups, lines = _groups(rows), []
    most = max((len(some) for group in groups.values() for some in group.values()), default=0)
    for memory in memories:
        shown = [network for network in networks if (network, memory) in groups]
        if not shown:
            continue
        heads = "".join(f" {NAMES[network]} | |" for network in shown)
        lines += [memory, "", f"| method |{heads}", "|---" * (2 * len(shown) + 1) + "|"]
        for method in methods:
            cells = [
                cell for network in shown for cell in _pair(groups[network, memory], method, most)
            ]
            if any(cells):
                lines.append("| " + " | ".join([method, *cells]) + " |")
        lines.append("")
    return lines


def _pair(group: dict[str, dict[int, dict[str, Any]]], method: str, most: int) -> tuple[str, str]:
    """Scores and difference of one method in the compact table."""
    some = group.get(method)
    if not some:
        return "", ""
    means = np.mean([np.array(row["values"]).mean(1) for row in some.values()], axis=0)
    seeds = "" if len(some) == most else f" ({len(some)})"
    mean, error = difference(some, group.get(CONTROL, {}))
    paired = "" if method == CONTROL or math.isnan(mean) else f"{mean:+.2f} ± {error:.2f}"
    return f"{means[0]:.2f}, {means[-1]:.2f}{seeds}", paired


def figure(
    rows: Rows, times: Sequence[str], path: Path, memories: Sequence[str] = ("PCMLike",)
) -> None:
    """Draws scores over time, without the rows that fall far below the others.

    One memory has three panels in a line; of several, each has a line of its own.
    """
    found = _groups(rows)
    memories = [memory for memory in memories if any((name, memory) in found for name in NAMES)]
    networks = [name for name in NAMES if any((name, memory) in found for memory in memories)]
    if not networks:
        return
    is_grid = len(memories) > 1
    keys = [(network, memory) for memory in memories for network in networks]
    groups = {key: found.get(key, {}) for key in keys}
    columns = len(networks) if is_grid else min(3, len(networks))
    lines = -(-len(groups) // columns)
    width, height = (3.3, 2.6) if is_grid else (4.2, 3.4)
    drawn = Figure(figsize=(width * columns, height * lines + 0.6), layout="constrained")
    axes = list(drawn.subplots(lines, columns, squeeze=False).flat)
    labelled = {}
    for axis, ((network, memory), methods) in zip(axes, groups.items(), strict=False):
        for k, method in enumerate(SHOWN):
            if method in methods:
                each = [np.array(row["values"]).mean(1) for row in methods[method].values()]
                mean = np.mean(each, axis=0)
                (labelled[method],) = axis.plot(range(len(times)), mean, marker="o", color=f"C{k}")
        axis.set_xticks(range(len(times)), times)
        axis.set_title(f"{NAMES[network]}, {memory}")
        axis.set_ylabel("bits per byte" if network == "gpt" else "accuracy in %")
        axis.grid(alpha=0.3)
    for axis in axes[len(groups) :]:
        axis.set_axis_off()
    drawn.legend(labelled.values(), labelled, loc="outside lower center", ncols=3)
    drawn.savefig(path, dpi=110)
