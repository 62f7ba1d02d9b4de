"""Adapts a small GPT from one text to another, in torch and on simulated arrays.

    python benchmarks/adapter_study.py [--out FOLDER] [--steps N] [--seeds N] [--device cuda]
                                       [--size gpt2]

The model reads bytes: 2 blocks of width 64 with 4 heads, context 64; or, with --size gpt2, the 12
blocks of width 768 of GPT-2's smallest (85 million numbers; its table of 50257 words is left out,
as bytes need 256). It is trained digitally on the prose of this repository's documents, and then
adapted to their generated tables of parameters, by adapters of rank 4 (gpt2: 8) on the four
matrices of each block; all else is frozen. Four ways:

    torch LoRA                 A and B in torch, Adam
    pulsed, digital base       A and B in arrays of 6T1C cells, trained by pulses; layers of torch
    pulsed, analog base        LRTT: adapters transfer into matrices that are in arrays too (EcRam)
    torch, noisy analog base   A and B in torch, Adam, beside frozen arrays, read with noise

The score is the mean cross entropy on the last tenth of the tables, in bits per byte. The table
shows it beside what was spent: steps, pulses, the bytes that training holds for A and B (their
weights and cells, their optimiser's moments, and the copies that it projects with), milliseconds a
step, and on a GPU the memory that the run added. adapters.json has the curves, adapters.png draws
them.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn import functional

import pulsora as pl
from pulsora._internal.text_tables import aligned
from pulsora.nn import AnalogModule, AnalogParameter

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTS = Path(__file__).resolve().parents[1] / "docs"
PROSE = (
    "howto/convert_model.md", "howto/train.md", "howto/choose_device.md", "howto/cpp.md",
    "howto/gpu.md",
    "explain/design.md", "explain/lrtt_study.md", "reference/lrtt.md", "reference/io.md",
)  # fmt: skip
TABLES = ("reference/parameters.md", "reference/devices.md")
TRANSFER_EVERY = 50


class Size(NamedTuple):
    """A model, its adapters, and how it is trained."""

    context: int
    width: int
    heads: int
    blocks: int
    batch: int
    rank: int
    pretraining_rate: float
    rates: float  # of the adaptations, beside those of the small model


SIZES = {
    "small": Size(64, 64, 4, 2, 16, 4, 3e-3, 1.0),
    "gpt2": Size(256, 768, 12, 12, 8, 8, 3e-4, 0.3),
}


class Block(nn.Module):
    """Attention and a fully connected part, each added to what went in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [batch, context, width]."""
        shape = (*x.shape[:2], self.heads, x.shape[2] // self.heads)
        q, k, v = (
            part.reshape(shape).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Bytes in, the logits of the next bytes out."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, size.width)
        self.places = nn.Parameter(0.02 * torch.randn(size.context, size.width))
        self.blocks = nn.Sequential(*(Block(size.width, size.heads) for _ in range(size.blocks)))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, 256, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """text [batch, context]."""
        x = self.blocks(self.bytes(text) + self.places[: text.shape[1]])
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


class Text(NamedTuple):
    """The bytes to learn, and those to be tested with."""

    train: torch.Tensor
    test: torch.Tensor


def read(names: tuple[str, ...], device: str) -> Text:
    """The documents of these names, of each the last tenth for testing."""
    parts = [torch.tensor(list((DOCUMENTS / name).read_bytes()), device=device) for name in names]
    cuts = [len(part) * 9 // 10 for part in parts]
    return Text(
        torch.cat([part[:cut] for part, cut in zip(parts, cuts, strict=True)]),
        torch.cat([part[cut:] for part, cut in zip(parts, cuts, strict=True)]),
    )


def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy of rows [batch, context + 1]."""
    logits = model(rows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def bits(model: nn.Module, text: torch.Tensor, context: int) -> float:
    """Bits per byte of a text."""
    rows = text[: (len(text) - 1) // context * context + 1].unfold(0, context + 1, context)
    return loss_of(model, rows).item() / math.log(2.0)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    text: torch.Tensor,
    size: Size,
    steps: int,
    seed: int,
    each: Callable[[int], None],
) -> None:
    """Steps on random pieces of a text; the rate falls to a tenth along a cosine."""
    generator = torch.Generator().manual_seed(seed)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.55 + 0.45 * math.cos(math.pi * min(step / steps, 1.0))
    )
    each(0)
    for step in range(1, steps + 1):
        starts = torch.randint(len(text) - size.context, (size.batch, 1), generator=generator)
        rows = text[(starts + torch.arange(size.context + 1)).to(text.device)]
        optimizer.zero_grad()
        loss_of(model, rows).backward()
        nn.utils.clip_grad_norm_((p for p in model.parameters() if p.requires_grad), 1.0)
        optimizer.step()
        schedule.step()
        each(step)


class Way(NamedTuple):
    """One way to adapt: how adapters are added, and the learning rate."""

    name: str
    mode: str
    settings: dict[str, Any]
    lr: float


def ways(size: Size, seed: int) -> list[Way]:
    """The four ways; learning rates of the small model were the best of a few short trials."""
    ecram = pl.devices.EcRam()
    lrtt = pl.LRTTConfig(rank=size.rank, visible=ecram, transfer_every=TRANSFER_EVERY)
    common = {
        "rank": size.rank,
        "targets": ["qkv", "out", "up", "down"],
        "seed": seed,
        "threads": 1,
    }
    digital = {key: value for key, value in common.items() if key != "threads"}
    return [
        Way("torch LoRA", "", digital, 3e-2 * size.rates),
        Way("pulsed, digital base", "digital_base", common, 0.4 * size.rates),
        Way("pulsed, analog base", "analog_base", common | {"config": lrtt}, 0.2 * size.rates),
        Way(
            "torch, noisy analog base", "analog_base_digital_adapter",
            common | {"base_config": pl.SingleConfig(device=ecram)}, 3e-2 * size.rates,
        ),
    ]  # fmt: skip


def adapted(model: nn.Module, way: Way) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model with adapters, and what trains them."""
    if way.mode:
        made = pl.peft.add_adapters(model, way.mode, **way.settings)
    else:  # tensors of torch on layers of torch
        made = copy.deepcopy(model).requires_grad_(requires_grad=False)
        for block in made.blocks:
            for name in way.settings["targets"]:
                layer = pl.nn.GatedAdapter(
                    getattr(block, name), way.settings["rank"], seed=way.settings["seed"]
                )
                setattr(block, name, layer)
    trained = [p for p in made.parameters() if p.requires_grad]
    return made, pl.optim.AnalogOptimizer(torch.optim.Adam, trained, lr=way.lr, analog_lr=way.lr)


def trained_bytes(model: nn.Module) -> int:
    """Bytes held in training for A and B, with the optimiser's moments and projected copies."""
    total = 0
    for parameter in model.parameters():
        if parameter.requires_grad and not isinstance(parameter, AnalogParameter):
            total += 3 * 4 * parameter.numel()  # the weight, and two moments of Adam
    for layer in model.modules():
        if isinstance(layer, AnalogModule) and layer.analog_weight.requires_grad:
            for tile in layer.tiles:
                whole = tile.memory_bytes
                if (
                    tile.adapter is not None
                ):  # without the large array, whose cells no gradient reaches
                    alone = pl.Tile(
                        tile.d_size, tile.x_size, pl.SingleConfig(device=tile.config.visible)
                    )
                    whole -= alone.memory_bytes
                total += whole
    return total


def pulses_of(model: nn.Module) -> int:
    """The pulses that all arrays have had."""
    layers = [layer for layer in model.modules() if isinstance(layer, AnalogModule)]
    return sum(int(table["pulses"]) for layer in layers for table in layer.statistics())


def gpu_bytes(text: Text) -> int:
    """The memory of the text's GPU that is taken; 0 on a CPU. Waits for its work."""
    if not text.train.is_cuda:
        return 0
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info(text.train.device)
    return total - free


def run(
    model: nn.Module, way: Way, text: Text, size: Size, steps: int, seed: int
) -> dict[str, Any]:
    """One adaptation: its curve, and what it took."""
    torch.cuda.empty_cache()
    memory = gpu_bytes(text)
    made, optimizer = adapted(model, way)
    start = time.perf_counter()
    scoring = 0.0
    curve: list[tuple[int, float, int]] = []

    def each(step: int) -> None:
        nonlocal scoring
        if step % max(steps // 20, 1) == 0 or step == steps:
            gpu_bytes(text)
            begin = time.perf_counter()
            curve.append((step, bits(made, text.test, size.context), pulses_of(made)))
            scoring += time.perf_counter() - begin

    train(made, optimizer, text.train, size, steps, seed, each)
    memory = gpu_bytes(text) - memory
    return {
        "way": way.name,
        "seed": seed,
        "curve": curve,
        "bytes": trained_bytes(made),
        "memory": memory,
        "step": (time.perf_counter() - start - scoring) / steps,
    }


def table(runs: list[dict[str, Any]]) -> str:
    """The results as a table, the mean of all seeds."""
    rows = [("way", "before", "after", "steps", "pulses", "bytes", "ms a step", "GPU MiB")]
    for name in dict.fromkeys(each["way"] for each in runs):
        own = [each for each in runs if each["way"] == name]

        def mean(values: list[float]) -> float:
            return sum(values) / len(values)

        rows.append(
            (
                name,
                f"{mean([each['curve'][0][1] for each in own]):.3f}",
                f"{mean([each['curve'][-1][1] for each in own]):.3f}",
                str(own[0]["curve"][-1][0]),
                f"{mean([each['curve'][-1][2] for each in own]):.3g}",
                str(own[0]["bytes"]),
                f"{1e3 * mean([each['step'] for each in own]):.1f}",
                f"{own[0]['memory'] / 2**20:.0f}",
            )
        )
    return aligned(rows)


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Bits per byte against steps, and against pulses."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    names = list(dict.fromkeys(each["way"] for each in runs))
    for each in runs:
        colour = f"C{names.index(each['way'])}"
        steps, score, pulses = zip(*each["curve"], strict=True)
        label = each["way"] if each["seed"] == runs[0]["seed"] else None
        left.plot(steps, score, color=colour, label=label)
        if pulses[-1]:
            right.plot(pulses, score, color=colour)
    left.set_xlabel("steps")
    left.set_ylabel("bits per byte")
    left.legend()
    right.set_xlabel("pulses")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Reads the options, runs all, and writes the table, the curves and the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder for adapters.json and adapters.png")
    parser.add_argument("--steps", type=int, default=300, help="steps of each adaptation")
    parser.add_argument("--pretraining", type=int, default=1500, help="steps on the prose")
    parser.add_argument("--seeds", type=int, default=1, help="adaptations of each way")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--size", choices=SIZES, default="small", help="of the model")
    parser.add_argument(
        "--ways", nargs="+", type=int, default=[1, 2, 3, 4], help="which of the four"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    size = SIZES[options.size]
    model = Gpt(size).to(options.device)
    prose, tables = read(PROSE, options.device), read(TABLES, options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.pretraining_rate)
    train(model, optimizer, prose.train, size, options.pretraining, 0, lambda _: None)
    print(
        f"pre-trained on {len(prose.train)} bytes of prose: "
        f"{bits(model, prose.test, size.context):.3f} bits per byte of "
        f"prose, {bits(model, tables.test, size.context):.3f} of tables ({len(tables.train)} bytes)"
    )
    runs = [
        run(model, way, tables, size, options.steps, seed)
        for seed in range(options.seeds)
        for number, way in enumerate(ways(size, seed), 1)
        if number in options.ways
    ]
    print(table(runs))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "adapters.json").write_text(f"{json.dumps(runs)}\n")
        draw(runs, options.out / "adapters.png")


if __name__ == "__main__":
    main()
