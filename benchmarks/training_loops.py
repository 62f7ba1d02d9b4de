"""Times training steps: plain loops and recorded steps (`TrainingStep`) beside digital torch.

    python benchmarks/training_loops.py [--device cuda:0] [--networks "mlp;lenet"] [--aihwkit]
                                        [--compounds] [--out FILE]

Every row trains on one batch of normal numbers with cross entropy (a mean of squares for the block
of a transformer) and SGD at a learning rate of 0.01. Steps are timed in groups, each from an idle
device to an idle device; the figure is the median of the groups, transfers that fall due within
them included. `digital` is torch's own layers in the same loops. With --aihwkit, where that package
is installed, its tiles of the same sizes run in them too, on the CPU: SoftBounds, and Tiki-Taka on
such devices, which is its low-cost cure for noisy pulses as LRTT is here. All have the default
periphery and device parameters of their package.

With --compounds, tables of chains of arrays and of mixed precision beside SoftBounds replace this
one, for 784-256-10 and 4 x 2048 with one tile a layer. The fast arrays of all chains learn at the
rate of the single array; `auto_scale` chooses its own rate. Aims on a GPU: recorded steps within
1.3 times those of SoftBounds, plain ones within 1.1.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import pulsora as pl
from pulsora.optim import AnalogSGD
from pulsora.training_step import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor


def mlp() -> nn.Module:
    """784-256-10."""
    return nn.Sequential(nn.Linear(784, 256), nn.Sigmoid(), nn.Linear(256, 10))


def deep() -> nn.Module:
    """Four layers of 2048 x 2048."""
    return nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(2048, 2048), nn.Sigmoid())))


def lenet() -> nn.Module:
    """LeNet-5 for 28 x 28 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.Sigmoid(), nn.Linear(84, 10),
    )  # fmt: skip


def block() -> nn.Module:
    """The two matrices of a transformer's block."""
    return nn.Sequential(nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768))


def char_lstm() -> nn.Module:
    """A recurrent layer of 128 over 32 steps of 64 features."""
    return _Last(nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 64))


class _Last(nn.Module):
    """The outputs of a recurrent layer's last step, through a layer."""

    def __init__(self, recurrent: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.recurrent, self.head = recurrent, head

    def forward(self, x: Tensor) -> Any:  # noqa: ANN401 - torch gives no type
        """The head's output."""
        return self.head(self.recurrent(x)[0][:, -1])


# Name: network, shape of a batch on a GPU and on a CPU, classes (0: squares), largest side of a
# tile.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...], int, int]] = {
    "mlp": (mlp, (128, 784), (128, 784), 10, 512),
    "mlp, one tile a layer": (mlp, (128, 784), (128, 784), 10, 0),
    "deep": (deep, (128, 2048), (16, 2048), 2048, 512),
    "deep, one tile a layer": (deep, (128, 2048), (16, 2048), 2048, 0),
    "lenet": (lenet, (64, 1, 28, 28), (16, 1, 28, 28), 10, 512),
    "block, one tile a layer": (block, (2048, 768), (128, 768), 0, 0),
    "char_lstm": (char_lstm, (64, 32, 64), (16, 32, 64), 64, 512),
}

CONFIGS = {
    "digital": None,
    "SoftBounds": pl.SingleConfig(device=pl.devices.SoftBounds()),
    "LRTT": pl.LRTTConfig(),
}

CELLS = pl.devices.SoftBounds()
RATE = 0.01
COMPOUNDS: dict[str, pl.TileConfig] = {
    "SoftBounds": pl.SingleConfig(device=CELLS),
    "Tiki-Taka v1": pl.TikiTaka(CELLS),
    "TTv2": pl.TTv2(CELLS),
    "c-TTv2": pl.ChoppedTTv2(CELLS, fast_lr=RATE),
    "AGAD": pl.AGAD(CELLS, fast_lr=RATE),
    "AGAD, auto_scale": pl.AGAD(CELLS, fast_lr=0.1, auto_scale=True),
    "mixed precision": pl.MixedPrecisionConfig(visible=CELLS),
    "mixed precision, products on the tile": pl.MixedPrecisionConfig(
        visible=CELLS, digital_weight=False
    ),
}
"""Kinds of --compounds: the first is the one to compare with."""
COMPOUND_NETWORKS = ("mlp, one tile a layer", "deep, one tile a layer")
AIMS = {"plain": 1.1, "recorded": 1.3}
"""Times of compounds beside those of the single array, on a GPU."""


def squares(y: Tensor, target: Tensor) -> Tensor:
    """The loss of the block."""
    return nn.functional.mse_loss(y, target)


def model_of(network: str, config: pl.TileConfig | None, device: torch.device) -> nn.Module:
    """The network on tiles, or digital."""
    make, *_, limit = NETWORKS[network]
    torch.manual_seed(0)
    model = make()
    if config is not None:
        model = pl.convert_to_analog(
            model, config, seed=1, max_input_size=limit, max_output_size=limit
        )
    return model.to(device)


def seconds(step: Callable[[], object], device: torch.device, groups: int = 5) -> float:
    """The time of one step."""

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(6):
        step()
    finish()
    start = time.perf_counter()
    step()
    finish()
    steps = max(3, min(300, round(0.15 / (time.perf_counter() - start))))
    times = []
    for _ in range(groups):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        finish()
        times.append((time.perf_counter() - start) / steps)
    return statistics.median(times)


def measured(network: str, column: str, device: torch.device) -> list[float]:
    """Seconds of a plain step, and of a recorded one on a GPU; none if AIHWKit lacks the layers."""
    _, gpu, cpu, classes, _ = NETWORKS[network]
    shape = gpu if device.type == "cuda" else cpu
    torch.manual_seed(1)
    x = torch.randn(shape, device=device)
    target = torch.randint(classes, shape[:1], device=device) if classes else torch.randn_like(x)
    loss_fn = nn.functional.cross_entropy if classes else squares
    if column.startswith("AIHWKit"):
        if network == "char_lstm":
            return [math.nan]
        from aihwkit_tiles import on_aihwkit_tiles  # noqa: PLC0415 - few have that package

        make, *_, limit = NETWORKS[network]
        torch.manual_seed(0)
        model, optimizer = on_aihwkit_tiles(make(), column.removeprefix("AIHWKit "), limit, lr=RATE)
    else:
        model = model_of(network, {**CONFIGS, **COMPOUNDS}[column], device)
        optimizer = AnalogSGD(model.parameters(), lr=RATE)

    def plain() -> None:
        optimizer.zero_grad()
        loss_fn(model(x), target).backward()
        optimizer.step()

    found = [seconds(plain, device)]
    if device.type == "cuda":
        recorded = TrainingStep(model, optimizer, loss_fn)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message=".*plain loop")
            found.append(seconds(lambda: recorded(x, target), device))
        if recorded.plain_because is not None:
            print(f"{network}, {column}: no recorded step; {recorded.plain_because}", flush=True)
            found[-1] = math.nan
    return found


def text(seconds_: float, device: torch.device) -> str:
    """A time in microseconds on a GPU, in milliseconds on a CPU."""
    if math.isnan(seconds_):
        return "-"
    return f"{1e6 * seconds_:.0f}" if device.type == "cuda" else f"{1e3 * seconds_:.1f}"


def kinds_table(names: list[str], kinds: list[str], device: torch.device) -> Iterator[str]:
    """Lines of the table of networks, whose columns are the kinds of tiles."""
    steps = ("plain", "recorded") if device.type == "cuda" else ("plain",)
    columns = [f"{kind}, {step}" for kind in kinds for step in steps]
    yield from ("", f"| network | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|")
    for network in names:
        cells = [text(t, device) for kind in kinds for t in measured(network, kind, device)]
        yield f"| {network} | {' | '.join(cells)} |"


def compounds_table(names: list[str], device: torch.device) -> Iterator[str]:
    """Lines of a table for each network, whose rows are compounds."""
    on_gpu = device.type == "cuda"
    steps = ("plain", "recorded") if on_gpu else ("plain",)
    for network in names:
        heads = [f"{step} | {_beside(step, on_gpu=on_gpu)}" for step in steps]
        yield from ("", f"| {network} | {' | '.join(heads)} |", "|---" * (2 * len(steps) + 1) + "|")
        single: list[float] = []
        for kind in COMPOUNDS:
            times = measured(network, kind, device)
            single = single or times
            cells = [f"{text(t, device)} | {t / s:.2f}" for t, s in zip(times, single, strict=True)]
            yield f"| {kind} | {' | '.join(cells)} |"


def _beside(step: str, *, on_gpu: bool) -> str:
    return f"beside SoftBounds (aim {AIMS[step]})" if on_gpu else "beside SoftBounds"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", help="names, separated by ;")
    parser.add_argument("--aihwkit", action="store_true", help="AIHWKit's tiles too, on the CPU")
    parser.add_argument("--compounds", action="store_true", help="chains and mixed precision")
    parser.add_argument("--out", type=Path, help="a file for the table, besides the screen")
    args = parser.parse_args()
    names = args.networks.split(";") if args.networks else list(NETWORKS)
    if args.compounds and not args.networks:
        names = list(COMPOUND_NETWORKS)
    if unknown := [name for name in names if name not in NETWORKS]:
        parser.error(f"networks {unknown} are unknown; there are {'; '.join(NETWORKS)}")
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if on_gpu else f"{torch.get_num_threads()} threads"
    if on_gpu and args.aihwkit:
        parser.error("--aihwkit is for --device cpu: its package for GPUs is another one")
    if args.compounds and args.aihwkit:
        parser.error("--compounds has no tiles of AIHWKit: run --aihwkit by itself")
    kinds = [*CONFIGS, *(("AIHWKit SoftBounds", "AIHWKit TTv1") if args.aihwkit else ())]
    unit = "microseconds" if on_gpu else "milliseconds"
    lines = [f"{name}, torch {torch.__version__}; {unit} a step"]
    print(lines[0], flush=True)
    table = compounds_table(names, device) if args.compounds else kinds_table(names, kinds, device)
    for line in table:
        print(line, flush=True)
        lines.append(line)
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
