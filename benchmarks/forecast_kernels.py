#!/usr/bin/env python3
"""Times the forecaster's kernels on a GPU beside their bounds, torch and CPU threads, or on a CPU.

    python benchmarks/forecast_kernels.py [--device cuda:0 | cpu] [--threads 2] [--out FILE]

Results are compared first: with the CPU's to 1e-5 after one step. A time is the median over groups
of calls, from an idle device to an idle device, the host's part included; "graph" is the same work
replayed from a CUDA graph, the device's part alone. "torch.compile" compiles torch's operations, of
rollouts those of one step.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from pulsora.forecast import Ensemble, encode, rollout, truncated_svd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    Call = Callable[[], object]

# An H200: products and sums of single precision outside tensor cores, and bytes of memory, a
# second.
FLOPS, BYTES = 2 * 132 * 128 * 1.785e9, 4.8e12


class Row(NamedTuple):
    """A case: Pulsora's and torch's calls on the GPU and on the CPU, and the GPU's least time."""

    name: str
    ours: Call | None
    torchs: Call | None
    cpu: Call | None
    torch_cpu: Call | None
    bound: float | None
    captured: bool = True
    """Whether graphs can replay them: decompositions wait for results."""
    compiled: Call | None = None
    """torch's operations on the GPU by torch.compile."""


def seconds(call: Call, device: torch.device | None = None, *, least: float = 0.2) -> float:
    """The median time of a call over groups of them."""

    def finish() -> None:
        if device is not None:
            torch.cuda.synchronize(device)

    for _ in range(2):
        call()
    finish()
    start = time.perf_counter()
    call()
    finish()
    count = max(1, int(least / 5 / max(time.perf_counter() - start, 1e-6)))
    groups = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            call()
        finish()
        groups.append((time.perf_counter() - start) / count)
    return statistics.median(groups)


def replayed(call: Call, device: torch.device) -> float:
    """The time of a call that a CUDA graph replays."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return seconds(graph.replay, device)


def timed(
    call: Call | None, device: torch.device, captured: bool
) -> tuple[float | None, float | None]:
    """A call's time and that of its replay."""
    if call is None:
        return None, None
    return seconds(call, device), replayed(call, device) if captured else None


def compiled(call: Call, device: torch.device) -> Call | None:
    """The call on a GPU; None on a CPU, where torch.compile needs a compiler."""
    return None if device.type == "cpu" else call


def ensemble(members: int, hidden: int, *, features: int = 64, encoded: int = 128) -> Ensemble:
    """Random weights, scaled so that states neither die nor saturate."""
    rng = np.random.default_rng(0)

    def normal(*shape: int, lines: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(lines)).astype(np.float32)

    return Ensemble(
        encoder=normal(members, features, encoded, lines=features),
        encoder_bias=normal(members, encoded, lines=100),
        input=normal(members, encoded, 3 * hidden, lines=encoded),
        recurrent=normal(members, hidden, 3 * hidden, lines=hidden),
        bias=normal(members, 3 * hidden, lines=100),
        heads=normal(members, hidden, 2, lines=hidden),
        log_variance_bias=normal(members, lines=1),
    )


def loop_of_torch(
    e: Ensemble, features: Tensor, steps: int, change: Callable[[Any], Any] = lambda step: step
) -> Call:
    """A rollout in torch, all members at once by batched products; `change` may compile a step."""
    hidden = e.recurrent.shape[1]

    def advance(pre: Tensor, h: Tensor, increment: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(pre + increment * e.encoder[:, :1])
        given = torch.baddbmm(e.bias[:, None], x, e.input)
        gates = torch.sigmoid(given[..., : 2 * hidden] + h @ e.recurrent[..., : 2 * hidden])
        z, r = gates.chunk(2, -1)
        n = torch.tanh(given[..., 2 * hidden :] + (r * h) @ e.recurrent[..., 2 * hidden :])
        h = (1 - z) * h + z * n
        return h, h @ e.heads[..., :1]

    step = change(advance)

    def run() -> Tensor:
        pre = torch.baddbmm(
            e.encoder_bias[:, None], features.expand(len(e.encoder), -1, -1), e.encoder
        )
        h = features.new_zeros(*pre.shape[:2], hidden)
        increment = features.new_zeros(*pre.shape[:2], 1)
        means = []
        for _ in range(steps):
            h, increment = step(pre, h, increment)
            means.append(increment)
        return torch.cat(means, -1).cumsum(-1)

    return run


def gru_of_torch(hidden: int, features: Tensor, steps: int, members: int) -> Call:
    """torch's own GRU (cuDNN), which has no feedback and one member: as many calls."""
    units = [nn.GRU(128, hidden, batch_first=True).to(features.device) for _ in range(members)]
    x = torch.randn(len(features), steps, 128, device=features.device)

    def run() -> list[Tensor]:
        with torch.no_grad():
            return [unit(x)[0] for unit in units]

    return run


def rollouts(device: torch.device, threads: int) -> list[Row]:
    """Ensembles of 5: hidden 256 and the package's 64."""
    rows = []
    for hidden, steps, count in ((256, 75, 32), (256, 10, 32), (64, 75, 16), (64, 10, 16)):
        here = ensemble(5, hidden)
        there = here.to(device)
        features = np.random.default_rng(1).standard_normal((count, 64)).astype(np.float32)
        given = torch.from_numpy(features).to(device)
        one, expected = rollout(there, given, 1), rollout(here, features, 1)
        np.testing.assert_allclose(one.mean.cpu(), expected.mean, rtol=1e-5, atol=1e-5)
        by_torch = loop_of_torch(there, given, steps)
        torch.testing.assert_close(
            rollout(there, given, steps).mean, by_torch(), rtol=1e-3, atol=1e-3
        )
        by_compiled = loop_of_torch(there, given, steps, torch.compile)
        macs = 5 * count * steps * (128 * 3 * hidden + 3 * hidden * hidden)
        host = here.to("cpu")
        name = f"rollout, 5 members, hidden {hidden}, {count} rows, {steps} steps"
        rows.append(
            Row(
                name,
                lambda there=there, given=given, steps=steps: rollout(there, given, steps),
                by_torch,
                lambda here=here, f=features, steps=steps: rollout(here, f, steps, threads=threads),
                loop_of_torch(host, torch.from_numpy(features), steps),
                2 * macs / FLOPS,
                compiled=compiled(by_compiled, device),
            )
        )
        if steps == 75:
            cudnn = gru_of_torch(hidden, given, steps, 5)
            rows.append(
                Row(
                    f"torch.nn.GRU without feedback, one by one, hidden {hidden}",
                    None,
                    cudnn,
                    None,
                    None,
                    None,
                )
            )
    return rows


def small(device: torch.device, threads: int) -> list[Row]:
    """Encoder and correction, of few rows and of many."""
    trained, features = ensemble(5, 256).to(device), torch.randn(32, 64, device=device)
    added = torch.randn(5, 32, 10, device=device)
    whole = "a whole prediction: encode, rollout (hidden 256, 10 steps), correction"
    rows = [Row(whole, lambda: rollout(trained, features, 10).mean + added, None, None, None, None)]
    for count in (32, 65536):
        rows += [encoding(count, device, threads), correction(count, device)]
    return rows


def encoding(count: int, device: torch.device, threads: int) -> Row:
    """relu(x W + b) of `count` rows."""
    rng = np.random.default_rng(2)

    def by_torch(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.relu(torch.addmm(b, x, w))

    by_compiled = torch.compile(by_torch)
    shapes = (count, 64), (64, 128), (128,)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    gx, gw, gb = (torch.from_numpy(a).to(device) for a in (x, w, b))
    tx, tw, tb = (torch.from_numpy(a) for a in (x, w, b))
    np.testing.assert_allclose(encode(gx, gw, gb).cpu(), encode(x, w, b), rtol=1e-5, atol=1e-4)
    return Row(
        f"encode, {count} x 64 by 64 x 128",
        lambda: encode(gx, gw, gb),
        lambda: by_torch(gx, gw, gb),
        lambda: encode(x, w, b, threads=threads),
        lambda: by_torch(tx, tw, tb),
        max(2 * 64 * 128 * count / FLOPS, 4 * (64 + 128) * count / BYTES),
        compiled=compiled(lambda: by_compiled(gx, gw, gb), device),
    )


def correction(count: int, device: torch.device) -> Row:
    """p + c, a sum of torch, for `count` rows of 75 steps."""
    torch.manual_seed(2)
    p, c = torch.randn(count, 75), torch.randn(count, 75)
    gp, gc = p.to(device), c.to(device)
    return Row(
        f"correction, {count} x 75",
        lambda: gp + gc,
        None,
        lambda: p + c,
        None,
        3 * 4 * 75 * count / BYTES,
    )


def decompositions(device: torch.device, threads: int) -> list[Row]:
    """4096 x 4096 of falling spectrum, and a history of 33 rows."""
    torch.manual_seed(0)
    rows = []
    size = 4096
    q, _ = torch.linalg.qr(torch.randn(size, size, device=device))
    p, _ = torch.linalg.qr(torch.randn(size, size, device=device))
    falling = torch.arange(1, size + 1, device=device, dtype=torch.float32).rsqrt()
    a = (q * falling) @ p
    host = a.cpu().numpy()
    found = truncated_svd(a, 16)
    best = falling[16:].square().sum().sqrt()
    error = (a - (found.U * found.S) @ found.V).norm()
    assert error <= 1.001 * best, f"error {error} for {best}"
    rows.append(
        Row(
            "svd, 4096 x 4096, k = 16, oversampling 16, 4 power steps",
            lambda: truncated_svd(a, 16),
            lambda: torch.svd_lowrank(a, 32, niter=4),
            lambda: truncated_svd(host, 16, threads=threads),
            lambda: torch.svd_lowrank(torch.from_numpy(host), 32, niter=4),
            max(10 * 2 * 32 * size * size / FLOPS, 10 * 4 * size * size / BYTES),
            captured=False,
        )
    )
    for width in (4096, 235146):
        history = torch.randn(33, width, device=device).cumsum(0)
        there = history.cpu().numpy()
        rows.append(
            Row(
                f"svd by gram, 33 x {width}, k = 16",
                lambda h=history: truncated_svd(h, 16, method="gram"),
                lambda h=history: torch.linalg.svd(h, full_matrices=False),
                lambda t=there: truncated_svd(t, 16, method="gram", threads=threads),
                lambda t=there: torch.linalg.svd(torch.from_numpy(t), full_matrices=False),
                max(2 * (33 * 33 + 33 * 16) * width / FLOPS, 2 * 4 * 33 * width / BYTES),
                captured=False,
            )
        )
    return rows


def gpu_table(device: torch.device, threads: int) -> Iterator[str]:
    """The lines of the table of a GPU, with its host's processors beside it."""
    torch.cuda.set_device(device)
    yield (
        f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}; "
        f"{threads} CPU threads; microseconds\n"
    )
    yield (
        "| case | bound | ours | ours, graph | share of bound | torch | torch, graph | "
        "torch.compile | ours, CPU | torch, CPU | times our CPU |"
    )
    yield "|" + "---|" * 11
    for make in (rollouts, small, decompositions):
        for row in make(device, threads):
            ours, graph = timed(row.ours, device, row.captured)
            theirs = timed(row.torchs, device, row.captured)
            with torch.no_grad():
                by_compiled = seconds(row.compiled, device) if row.compiled else None
            cpu = [seconds(call) if call else None for call in (row.cpu, row.torch_cpu)]
            alone = graph or ours
            share = f"{row.bound / alone:.0%}" if row.bound and alone else ""
            gain = f"{cpu[0] / ours:.1f}" if cpu[0] and ours else ""
            shown = [
                "" if t is None else f"{1e6 * t:.1f}"
                for t in (row.bound, ours, graph, *theirs, by_compiled, *cpu)
            ]
            cells = [row.name, *shown[:3], share, *shown[3:], gain]
            yield "| " + " | ".join(cells) + " |"


def cpu_table(threads: int) -> Iterator[str]:
    """The lines of the table of a CPU alone."""
    yield f"CPU, torch {torch.__version__}; {threads} threads; microseconds\n"
    yield "| case | ours | torch | ours over torch |"
    yield "|---|---|---|---|"
    for make in (rollouts, small, decompositions):
        for row in make(torch.device("cpu"), threads):
            if row.cpu and row.torch_cpu:
                ours, theirs = seconds(row.cpu), seconds(row.torch_cpu)
                cells = [row.name, *(f"{1e6 * t:.1f}" for t in (ours, theirs))]
                yield "| " + " | ".join([*cells, f"{ours / theirs:.2f}"]) + " |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0", help="a GPU, or cpu (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="where the table is written too")
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    torch.set_num_threads(chosen.threads)
    lines = []
    on_cpu = device.type == "cpu"
    for line in cpu_table(chosen.threads) if on_cpu else gpu_table(device, chosen.threads):
        lines.append(line)
        print(line, flush=True)
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
