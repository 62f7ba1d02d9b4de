#!/usr/bin/env python3
"""Times training steps of a GPT, digital and on analog tiles, on one GPU or several of one host.

    python benchmarks/gpt.py [--ranks 1 2] [--layers 12] [--width 768] [--rows 16] [--tokens 256]
        [--only NAME ...] [--tiles 512 0] [--loops plain recorded] [--updates all auto sharded]
        [--weights all sharded] [--weak] [--frozen] [--steps 10] [--out FILE]

A GPT over bytes (85 million weights in its blocks by default) learns random tokens by SGD: mean
cross entropy, rows x tokens in a global batch. With --weak every process has so many rows. The
matrices of the blocks are analog, in tiles of 512 x 512 at most, or one tile a matrix (0);
embeddings, layer norms and the last layer are digital. Digital controls: float32, TF32 and autocast
with bfloat16; DistributedDataParallel where there are several processes (NCCL). --updates says who
makes the pulses then (`pulsora.distributed.prepare`); "sharded" is cells="sharded". --weights says
who stores the weights; with "sharded" pulses are shared, and the loop is the plain one.

Times are in milliseconds of a step, the least of three rounds. Memory is that of the first GPU, in
GiB: the most that torch has allocated, and what the card has in use. "Made" is the time to make and
to convert the model, in seconds. With --frozen, analog weights alone are trained, by an attention
whose backward pass has the same bits at any time; the weights then have to be the same, to the bit,
for any number of processes, whoever makes the pulses, plain or recorded; else nothing is printed
but that.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist
from torch import nn

import pulsora as pl
from pulsora.training_step import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = 256
WAYS = {"sharded": {"cells": "sharded"}, "weights sharded": {"weights": "sharded"}}
DIGITAL = ("digital float32", "digital TF32", "digital bfloat16")
CONFIGS: dict[str, pl.TileConfig] = {
    "SoftBounds": pl.SingleConfig(device=pl.devices.SoftBounds()),
    "LRTT": pl.LRTTConfig(visible=pl.devices.SoftBounds()),
}


class Block(nn.Module):
    """Attention and a layer of four times the width, each with its layer norm and a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x has the shape [rows, tokens, width]."""
        rows, tokens, width = x.shape
        parts = self.qkv(self.norm_1(x)).view(rows, tokens, 3, width // 64, 64)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm_2(x))))


class GPT(nn.Module):
    """Embeddings, blocks and a last layer over bytes."""

    def __init__(self, layers: int, width: int, tokens: int) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(BYTES, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, BYTES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x holds bytes, [rows, tokens]."""
        places = torch.arange(x.shape[1], device=x.device)
        logits: torch.Tensor = self.last(self.blocks(self.bytes(x) + self.places(places)))
        return logits


def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over rows and tokens."""
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def digest(model: nn.Module) -> str:
    """A digest of the analog weights."""
    found = hashlib.sha256()
    for layer in model.modules():
        if isinstance(layer, pl.nn.AnalogLinear):
            found.update(layer.tiles.get_weights().cpu().numpy().tobytes())
    return found.hexdigest()


def _freeze(model: nn.Module) -> None:
    """Leaves what is trained to the analog matrices and their biases."""
    analog = {id(p) for layer in model.modules() if isinstance(layer, pl.nn.AnalogLinear)
              for p in layer.parameters()}  # fmt: skip
    for each in model.parameters():
        each.requires_grad_(id(each) in analog)


class Case:
    """A model on this process's GPU, and its steps."""

    def __init__(self, options: argparse.Namespace, case: dict[str, Any], device: str) -> None:
        self.options, self.case, self.device = options, case, device
        torch.backends.cuda.matmul.allow_tf32 = case["what"] == "digital TF32"
        torch.manual_seed(1)
        begin = time.perf_counter()
        model = GPT(options.layers, options.width, options.tokens).to(device)
        size = dist.get_world_size() if dist.is_initialized() else 1
        if case["what"] in CONFIGS:
            most = {"max_input_size": case["tiles"], "max_output_size": case["tiles"]}
            config = CONFIGS[case["what"]]
            model.blocks = pl.convert_to_analog(model.blocks, config, seed=1, inplace=True, **most)
            if options.frozen:
                _freeze(model)
            if size > 1:
                updates = case["updates"]
                pl.distributed.prepare(model, **WAYS.get(updates, {"updates": updates}))
            self.optimizer: torch.optim.Optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.01)
        else:
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.plain: nn.Module = model
        if size > 1 and not options.frozen and case["loop"] == "plain":
            self.plain = nn.parallel.DistributedDataParallel(model)
        torch.cuda.synchronize()
        self.made = time.perf_counter() - begin
        # torch's fused attention adds in any order in its backward pass.
        torch.backends.cuda.enable_mem_efficient_sdp(not options.frozen)
        torch.backends.cuda.enable_flash_sdp(not options.frozen)
        self.step: Callable[..., Any] = self.plain_step
        if case["loop"] == "recorded":
            self.step = TrainingStep(model, self.optimizer, loss_fn)
        self.model = model

    def plain_step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One step of the plain loop."""
        self.optimizer.zero_grad()
        is_half = self.case["what"] == "digital bfloat16"
        with torch.autocast("cuda", torch.bfloat16, enabled=is_half):
            loss = loss_fn(self.plain(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def measure(self, rank: int, size: int) -> dict[str, Any]:
        """Milliseconds of a step, memory, and a digest of the weights after some steps."""
        options = self.options
        rows = options.rows * (size if options.weak else 1)
        generator = torch.Generator().manual_seed(2)
        x = torch.randint(BYTES, (rows, options.tokens + 1), generator=generator)
        mine = slice(rank * rows // size, (rank + 1) * rows // size)
        x = x[mine].to(self.device)
        batch = x[:, :-1].contiguous(), x[:, 1:].contiguous()

        def steps(count: int) -> float:
            torch.cuda.synchronize()
            if size > 1:
                dist.barrier()
            begin = time.perf_counter()
            for _ in range(count):
                self.step(*batch)
            torch.cuda.synchronize()
            return 1000.0 * (time.perf_counter() - begin) / count

        steps(5)
        with contextlib.ExitStack() as stack:
            if size > 1 and self.case["what"] in CONFIGS:
                stack.enter_context(pl.distributed.gathered(self.model))
            weights = digest(self.model)
        ms = min(steps(options.steps) for _ in range(3))
        free, total = torch.cuda.mem_get_info()
        return {
            "ms": ms,
            "tokens": rows * options.tokens / ms * 1000,
            "allocated": torch.cuda.max_memory_allocated() / 2**30,
            "card": (total - free) / 2**30,
            "made": self.made,
            "weights": weights,
            "plain_because": getattr(self.step, "plain_because", None),
        }


def ways_of(options: argparse.Namespace, loop: str) -> list[str]:
    """Choices of `updates`, and of sharded weights, in several processes."""
    found: list[str] = options.updates if "all" in options.weights else []
    is_sharded = "sharded" in options.weights and loop == "plain"
    return found + ["weights sharded"] * is_sharded


def cases(options: argparse.Namespace, size: int) -> list[dict[str, Any]]:
    """The cases that are measured in so many processes."""
    found = [{"what": n, "tiles": "", "loop": "plain", "updates": ""} for n in DIGITAL]
    for name in CONFIGS:
        for tiles in options.tiles:
            for loop in options.loops:
                ways = ways_of(options, loop) if size > 1 else ["all"]
                found += [{"what": name, "tiles": tiles, "loop": loop, "updates": w} for w in ways]
    return [each for each in found if not options.only or each["what"] in options.only]


def worker(rank: int, size: int, folder: str, options: argparse.Namespace) -> None:
    """One process of `size`; rank 0 leaves its figures in a file."""
    torch.cuda.set_device(rank)
    torch.set_num_threads(1)
    if size > 1:
        store = f"file://{folder}/store_{size}"
        dist.init_process_group("nccl", init_method=store, rank=rank, world_size=size)
    found = []
    for each in cases(options, size):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        case = Case(options, each, f"cuda:{rank}")
        found.append(each | {"ranks": size} | case.measure(rank, size))
        if rank == 0:
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
        del case
    if rank == 0:
        Path(folder, f"{size}.json").write_text(json.dumps(found))
    if size > 1:
        dist.destroy_process_group()


def table(found: list[dict[str, Any]]) -> list[str]:
    """The figures, and how many times as fast several processes are as one."""
    lines = [
        "| network | tile | ranks | loop, pulses | ms | tokens/s | gain | torch | card | made |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        same = [f for f in found if (f["what"], f["tiles"]) == (each["what"], each["tiles"])]
        alone = next((f for f in same if f["ranks"] == 1 and f["loop"] == each["loop"]), None)
        gain = f"{each['tokens'] / alone['tokens']:.2f}" if alone else ""
        loop = f"{each['loop']}, {each['updates']}" if each["ranks"] > 1 else each["loop"]
        loop += " (ran plainly)" if each["plain_because"] else ""
        lines.append(
            f"| {each['what']} | {each['tiles']} | {each['ranks']} | {loop} | {each['ms']:.1f} | "
            f"{each['tokens']:.0f} | {gain} | {each['allocated']:.2f} | {each['card']:.2f} | "
            f"{each['made']:.1f} |"
        )
    return lines


def main() -> int:
    """Starts the processes of each size, one after another, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768, help="a multiple of 64")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--only", nargs="*", choices=[*DIGITAL, *CONFIGS])
    parser.add_argument("--tiles", type=int, nargs="+", default=[512])
    parser.add_argument("--loops", nargs="+", choices=["plain", "recorded"],
                        default=["plain", "recorded"])  # fmt: skip
    parser.add_argument("--updates", nargs="+", choices=["all", "shared", "auto", "sharded"],
                        default=["auto"])  # fmt: skip
    parser.add_argument("--weights", nargs="+", choices=["all", "sharded"], default=["all"])
    parser.add_argument("--weak", action="store_true")
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in options.ranks:
            torch.multiprocessing.spawn(worker, (size, folder, options), nprocs=size)
            found += json.loads(Path(folder, f"{size}.json").read_text())
    for name in CONFIGS if options.frozen else ():
        for tiles in options.tiles:
            some = [f for f in found if (f["what"], f["tiles"]) == (name, tiles)]
            if len({each["weights"] for each in some}) > 1:
                print(f"{name}, tiles {tiles}: the weights differ")
                return 1
    lines = table(found)
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
