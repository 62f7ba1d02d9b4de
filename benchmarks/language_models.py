#!/usr/bin/env python3
"""Trains language models of billions of weights on one GPU: analog, and digital beside it.

    python benchmarks/language_models.py --shape 7b --what LRTT "LoRA float32" "LoRA bfloat16"
        [--rows 1] [--tokens 2048] [--tiles 0] [--steps 20] [--again FOLDER] [--device cuda:0]
        [--out FILE]

The shapes are those of GPT-2 XL (1.5 billion weights) and of a Llama of 7 billion: RMSNorm, rotary
positions, SwiGLU in place of both their own; embeddings and the last layer stay digital and are not
trained. All other matrices are analog, a tile each unless --tiles gives their largest size, and get
their pulses in the backward pass (`in_backward=True`). "16" reads weights of 16 bits. "LoRA" has
PEFT's adapters of the same rank 8 on the same matrices, which stay as they are. "digital" trains
all matrices by SGD. Blocks are checkpointed: their activations are computed again in the backward
pass.

Analog models come from the meta device; their weights are normal numbers, made on the GPU. Each
process trains one model on one batch of random tokens. Columns: billions of weights, seconds until
the model is there, the loss at first and at last, milliseconds of a step (median of the last half),
and GiB of the card, once the model is there: what torch has allocated at most, and what the card
has lent to the process.
With --again, the analog model is saved in parts in a folder and loaded into another one from the
meta device, whose weights have to be the saved ones; two further steps of both have to have the
same losses and to leave the same weights, to the bit. Attention is torch's plain one then: its
fused one adds in any order in the backward pass.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pulsora as pl

if TYPE_CHECKING:
    from torch import Tensor

RANK = 8
SHORT = pl.IOParameters(weight_bits=16)
CONFIGS: dict[str, pl.TileConfig] = {
    "LRTT": pl.LRTTConfig(rank=RANK, visible=pl.devices.SoftBounds()),
    "LRTT 16": pl.LRTTConfig(
        rank=RANK, visible=pl.devices.SoftBounds(), forward=SHORT, backward=SHORT
    ),
    "SoftBounds": pl.SingleConfig(device=pl.devices.SoftBounds(cells="computed")),
}
LORA = ("LoRA float32", "LoRA bfloat16")
WHAT = (*CONFIGS, *LORA, "digital float32", "digital bfloat16")
EXTRA = 2  # steps after the saved one


@dataclass(frozen=True)
class Shape:
    """Numbers of a model."""

    layers: int
    width: int
    inner: int
    heads: int
    words: int


SHAPES = {
    "small": Shape(2, 64, 160, 4, 128),
    "1.5b": Shape(48, 1600, 4288, 25, 50257),
    "7b": Shape(32, 4096, 11008, 32, 32000),
}


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary positions of x [rows, heads, tokens, 2 n] by angles [tokens, n]."""
    one, other = x.chunk(2, -1)
    sin, cos = angles.sin().to(x), angles.cos().to(x)
    return torch.cat([one * cos - other * sin, one * sin + other * cos], -1)


class Block(nn.Module):
    """Attention and SwiGLU, each with its norm and a residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, inner = shape.width, shape.inner
        self.heads = shape.heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        linear = functools.partial(nn.Linear, bias=False)
        self.query, self.key = linear(width, width), linear(width, width)
        self.value, self.out = linear(width, width), linear(width, width)
        self.gate, self.up = linear(width, inner), linear(width, inner)
        self.down = linear(inner, width)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """x has the shape [rows, tokens, width]."""
        rows, tokens, width = x.shape
        normed = self.norm_1(x)
        query, key, value = (
            each(normed).view(rows, tokens, self.heads, -1).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        seen = nn.functional.scaled_dot_product_attention(
            turned(query, angles), turned(key, angles), value, is_causal=True
        )
        x = x + self.out(seen.transpose(1, 2).reshape(rows, tokens, width))
        normed = self.norm_2(x)
        y: Tensor = x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))
        return y


class Model(nn.Module):
    """Embeddings, checkpointed blocks and a last layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.words, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.last = nn.Linear(shape.width, shape.words, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x holds numbers of words, [rows, tokens]."""
        half = self.shape.width // self.shape.heads // 2
        steps = torch.arange(half, device=x.device) / half
        places = torch.arange(x.shape[1], device=x.device)
        angles = places[:, None] * 10000.0**-steps
        y = self.words(x).requires_grad_(torch.is_grad_enabled())
        for block in self.blocks:
            y = checkpoint(block, y, angles, use_reentrant=False, context_fn=pl.nn.replayed_reads)
        logits: Tensor = self.last(self.norm(y))
        return logits


def on_meta(shape: Shape) -> Model:
    """The model without weights."""
    with torch.device("meta"):
        return Model(shape)


def fill(model: nn.Module, device: str) -> None:
    """Gives all weights normal numbers: those of trained networks have a similar spread."""
    generator = torch.Generator(device).manual_seed(1)

    def made(size: tuple[int, ...]) -> Tensor:
        return torch.randn(size, generator=generator, device=device).mul_(size[-1] ** -0.5)

    for module in list(model.modules()):
        if isinstance(module, pl.nn.AnalogLinear):
            module.set_weights(made(module.tiles.shape))
            continue
        for name, each in list(module.named_parameters(recurse=False)):
            values = (
                made(tuple(each.shape)) if each.dim() > 1 else torch.ones(each.shape, device=device)
            )
            setattr(module, name, nn.Parameter(values, requires_grad=False))


def analog(options: argparse.Namespace, what: str) -> Model:
    """An analog model without weights, whose tiles are on the device."""
    model = on_meta(SHAPES[options.shape])
    pl.convert_to_analog(
        model.blocks, CONFIGS[what], seed=1, weight_scaling="abs_max", inplace=True,
        device=options.device, max_input_size=options.tiles, max_output_size=options.tiles,
    )  # fmt: skip
    return model


def digital(shape: Shape, what: str, device: str) -> Model:
    """A digital model, with PEFT's adapters for LoRA."""
    model = on_meta(shape)
    fill(model, device)
    half = what == "LoRA bfloat16"
    if half:
        model.to(torch.bfloat16)
    matrices = [f for f in model.blocks.modules() if isinstance(f, nn.Linear)]
    if what not in LORA:
        for each in matrices:
            each.weight.requires_grad = True
        return model
    import peft  # noqa: PLC0415 - for these rows alone

    names = sorted({n.rsplit(".", 1)[-1] for n, m in model.blocks.named_modules()
                    if isinstance(m, nn.Linear)})  # fmt: skip
    settings = peft.LoraConfig(r=RANK, lora_alpha=RANK, target_modules=names)
    found: Model = peft.inject_adapter_in_model(settings, model)
    return found


class Run:
    """Steps of a model on one batch."""

    def __init__(self, model: Model, options: argparse.Namespace, what: str) -> None:
        self.model, self.half = model, what.endswith("bfloat16")
        trained = [each for each in model.parameters() if each.requires_grad]
        if what in CONFIGS:
            self.optimizer: Any = pl.optim.AnalogSGD(trained, lr=options.lr, in_backward=True)
        else:
            self.optimizer = torch.optim.SGD(trained, lr=options.lr)
        generator = torch.Generator().manual_seed(2)
        size = options.rows, options.tokens + 1
        words = torch.randint(model.shape.words, size, generator=generator).to(options.device)
        self.x, self.y = words[:, :-1].contiguous(), words[:, 1:].contiguous()

    def step(self) -> float:
        """A step, and its loss; waits for the GPU."""
        self.optimizer.zero_grad()
        with torch.autocast(self.x.device.type, torch.bfloat16, enabled=self.half):
            logits = self.model(self.x)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), self.y.flatten())
        del logits
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return float(loss.detach())


def digest(model: nn.Module) -> list[int]:
    """A number for each analog matrix: the sum of its bits times odd numbers, modulo 2^64."""
    found = []
    for layer in model.modules():
        if isinstance(layer, pl.nn.AnalogLinear):
            bits = layer.tiles.get_weights().flatten().view(torch.int32)
            odd = 2 * torch.arange(len(bits), device=bits.device) + 1
            found.append(int((odd * bits).sum()))
    return found


def say(text: str, begin: float) -> None:
    """Progress, with the seconds since `begin`."""
    print(f"{time.perf_counter() - begin:8.1f} s  {text}", file=sys.stderr, flush=True)


def continued(run: Run, options: argparse.Namespace, what: str, begin: float) -> str:
    """How a model that is saved and loaded goes on, beside the saved one."""
    folder = options.again
    torch.backends.cuda.enable_mem_efficient_sdp(enabled=False)
    torch.backends.cuda.enable_flash_sdp(enabled=False)
    saved = digest(run.model)
    pl.save(run.model, folder)
    say("saved", begin)
    losses, weights = [run.step() for _ in range(EXTRA)], digest(run.model)
    again = analog(options, what)
    say("converted again", begin)
    del run.model
    gc.collect()
    pl.load(again, folder)
    for each in again.parameters():
        if not isinstance(each, pl.nn.AnalogParameter):
            each.requires_grad = False
    say("loaded", begin)
    loaded = digest(again)
    other = Run(again, options, what)
    found = [other.step() for _ in range(EXTRA)]
    faults = []
    if loaded != saved:
        faults.append("other weights are loaded")
    if found != losses:
        faults.append(f"losses {found} instead of {losses}")
    if (differ := sum(a != b for a, b in zip(digest(again), weights, strict=True))) > 0:
        faults.append(f"{differ} of {len(weights)} matrices end with other weights")
    return "; ".join(faults) or "to the bit"


def measure(options: argparse.Namespace, what: str) -> dict[str, Any]:
    """Makes and trains a model."""
    is_gpu = options.device.startswith("cuda")
    begin = time.perf_counter()
    shape = SHAPES[options.shape]
    if what in CONFIGS:
        model = analog(options, what)
        say("converted", begin)
        fill(model, options.device)
    else:
        model = digital(shape, what, options.device)
    model.train()
    if is_gpu:
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    made = time.perf_counter() - begin
    say("made", begin)
    run = Run(model, options, what)
    losses, times = [], []
    for number in range(options.steps):
        start = time.perf_counter()
        losses.append(run.step())
        times.append(1000 * (time.perf_counter() - start))
        say(f"step {number + 1}: loss {losses[-1]:.4f}, {times[-1]:.0f} ms", begin)
    free, total = torch.cuda.mem_get_info() if is_gpu else (0, 0)
    found = {
        "what": what,
        "shape": options.shape,
        "weights": sum(p.numel() for p in on_meta(shape).parameters()) / 1e9,
        "made": made,
        "losses": losses,
        "ms": statistics.median(times[len(times) // 2 :]),
        "torch": torch.cuda.max_memory_allocated() / 2**30 if is_gpu else 0.0,
        "card": (total - free) / 2**30,
        "continues": "",
    }
    if options.again and what in CONFIGS:
        del model
        found["continues"] = continued(run, options, what, begin)
    return found


def table(found: list[dict[str, Any]]) -> list[str]:
    """The rows of all models."""
    lines = [
        "| shape | model | billions | made, s | loss | ms | torch, GiB | card, GiB | goes on |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = (
        f"| {f['shape']} | {f['what']} | {f['weights']:.2f} | {f['made']:.1f} | "
        f"{f['losses'][0]:.3f} to {f['losses'][-1]:.3f} | {f['ms']:.0f} | {f['torch']:.1f} | "
        f"{f['card']:.1f} | {f['continues']} |"
        for f in found
    )
    return [*lines, *rows]


def main() -> int:
    """Measures each model in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="7b")
    parser.add_argument("--what", nargs="+", choices=WHAT, default=["LRTT", *LORA])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--tiles", type=int, default=0, help="largest size of a tile; 0: any")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--again", type=Path, help="a folder for the saved model")
    parser.add_argument("--out", type=Path, help="a file for the table")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(measure(options, options.what[0])))
        return 0
    found = []
    for what in options.what:
        arguments = [each for each in sys.argv if each not in options.what and each != "--what"]
        run = subprocess.run(  # noqa: S603
            [sys.executable, *arguments, "--alone", "--what", what], stdout=subprocess.PIPE,
            check=False,
        )  # fmt: skip
        if run.returncode != 0:
            print(f"{what}: ended with {run.returncode}", file=sys.stderr)
            continue
        found.append(json.loads(run.stdout.splitlines()[-1]))
        lines = table(found)
        if options.out:
            options.out.write_text("\n".join(lines) + "\n")
    print("\n".join(table(found)))
    return 0 if len(found) == len(options.what) else 1


if __name__ == "__main__":
    sys.exit(main())
