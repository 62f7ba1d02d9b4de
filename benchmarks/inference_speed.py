"""Times programming, drift, reads, hardware-aware steps and evaluations of programmed arrays.

    python benchmarks/inference_speed.py [--device cuda:0] [--size 512] [--tile 0] [--full]
                                         [--models] [--out FILE]

The arrays have PCMLike devices in pairs and global compensation, measured through their converters.
A layer is one array, or with --tile arrays of so many inputs and outputs. Each row is checked
before it is timed: a realisation against one made in another order of calls, and on a GPU against
that of a CPU, to the bit; reads of a perfect array against torch, to rounding; an evaluation
against the loop of single realisations. Reads "once" have no bound management; the others repeat
nearly all rows, because the weights fill the range of the cells.

Times are medians of calls from an idle device to an idle device, and of an evaluation one call. The
columns: the time, the same for each weight (or each sample of an evaluation), and beside it torch's
own time for the same product, step or number of passes. --full adds 100 programmings with 8 times
and a read each, and LeNet-5 with 10000 images.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import pulsora as pl
from pulsora._internal.text_tables import aligned
from pulsora.training.models import lenet

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

ROWS = 64  # samples of a read
LARGE = 2048  # samples of a training step, and of a large read
IMAGES, PROGRAMMINGS, TIMES = 1000, 5, ("1 s", "1 h", "1 day", "1 month", "1 year")
FULL_IMAGES, FULL_PROGRAMMINGS = 10000, 25
FULL_TIMES = ("1 s", "1 min", "1 h", "6 h", "1 day", "1 week", "1 month", "1 year")
SEQUENCE = 100  # programmings of the row of programmings and times
REPEATS = 15


@dataclass(frozen=True)
class Row:
    """A measured row: milliseconds, the number of things, and torch's milliseconds, if any."""

    name: str
    ms: float
    count: int
    of: str
    torch_ms: float | None = None

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        beside = "-" if self.torch_ms is None else f"{self.torch_ms:.3f}"
        ratio = "-" if self.torch_ms is None else f"{self.ms / self.torch_ms:.2f}"
        each = f"{1e6 * self.ms / self.count:.2f} ns per {self.of}"
        return self.name, f"{self.ms:.3f}", each, beside, ratio


def median(call: Callable[[], object], device: str, repeats: int = REPEATS) -> float:
    """Median milliseconds of a call."""
    spent = []
    for number in range(repeats + 2):
        _wait(device)
        begin = time.perf_counter()
        call()
        _wait(device)
        if number >= 2:
            spent.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(spent)


def busy(call: Callable[[], object], threads: int, repeats: int = 20) -> float:
    """Least milliseconds that a call keeps each of its threads busy on a CPU.

    Unlike the time that passes, this hardly depends on other programs of the machine.
    """
    least = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        call()
        least = min(least, 1e3 * (time.process_time() - begin) / threads)
    return least


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def require(holds: object, what: str) -> None:
    """Ends the program where a check fails."""
    if not holds:
        raise SystemExit(f"the check failed: {what}")


def config(**settings: object) -> pl.InferenceConfig:
    """The arrays of all rows."""
    memory = pl.noise_models.PCMLike()
    given = {"noise_model": memory, "compensation": "global", "scaling_per": "tile"} | settings
    return pl.InferenceConfig(**given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Place:
    """The device of layers, their size, and the most inputs and outputs of a tile (0: all)."""

    size: int
    device: str
    tile: int = 0

    def layer(self, **settings: object) -> nn.Module:
        """A square layer."""
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(self.size, self.size, bias=False))
        made = pl.convert_to_analog(
            plain, config(**settings), seed=1, max_input_size=self.tile, max_output_size=self.tile
        )
        return made.to(self.device)


def once(bits: int) -> pl.IOParameters:
    """Converters without bound management, which repeats no row."""
    return pl.IOParameters(weight_bits=bits, bound_management="none")


def same_as_on_a_cpu(place: Place) -> None:
    """Compares the realised weights of a layer of at most 256 inputs with those on a CPU."""
    seen = []
    for device in ("cpu", place.device):
        model = Place(min(place.size, 256), device, place.tile).layer().eval()
        pl.drift(pl.program(model, 3), 3600.0)
        seen.append([_host(tile.weights) for tile in model[0].tiles])
    same = all(np.array_equal(one, other) for one, other in zip(*seen, strict=True))
    require(same, "realised weights differ from those on a CPU")


def _host(weights: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - of numpy or torch
    return weights.cpu().numpy() if isinstance(weights, torch.Tensor) else np.array(weights)


def reads(place: Place) -> list[Row]:
    """Reads of a programmed layer beside torch's product in float32 and, on a GPU, bfloat16."""
    found = []
    weights = place.size**2
    types = (torch.float32, torch.bfloat16) if place.device != "cpu" else (torch.float32,)
    chosen = [(ROWS, 32, True), (LARGE, 32, True), (ROWS, 24, True), (LARGE, 24, True)]
    chosen += [(rows, bits, False) for rows in (ROWS, LARGE) for bits in (24, 16)]
    for rows, bits, repeats in chosen:
        forward = pl.IOParameters(weight_bits=bits) if repeats else once(bits)
        model = pl.program(place.layer(forward=forward).eval(), 3)
        weight = model[0].weight.detach()
        x = torch.randn(rows, place.size, device=place.device)
        with torch.no_grad():
            ms = median(lambda m=model, x=x: m(x), place.device)
            for dtype in types:
                w, given = weight.to(dtype), x.to(dtype)
                beside = median(lambda w=w, given=given: given @ w.t(), place.device)
                of = "bfloat16" if dtype == torch.bfloat16 else "float32"
                kind = "read" if repeats else "read once"
                name = f"{kind}, {rows} samples, {bits} bits, beside {of}"
                found.append(Row(name, ms, weights, "weight", beside))
    return found


def many_points(model: nn.Module, x: Tensor, programmings: int) -> pl.inference.InferenceReport:
    """Evaluates the first output of a layer at many points."""
    return pl.inference.evaluate(
        model, [(x, x[:, 0])], metric=lambda y, _: y[:, 0],
        times=FULL_TIMES, programmings=programmings,
    )  # fmt: skip


def require_points(model: nn.Module, x: Tensor) -> None:
    """Compares an evaluation with reads at its points, one after another."""
    found = many_points(model, x, 2).values
    for number in range(2):
        pl.program(model, number)
        for i, time_ in enumerate(FULL_TIMES):
            mean = float(pl.drift(model, time_)(x)[:, 0].double().mean())
            near = abs(mean - found[i, number]) < 0.01  # single outputs may round to another level
            require(near, "an evaluation differs from reads at its points")


def arrays(place: Place, full: bool) -> list[Row]:
    """Programming, drift, and reads of a programmed array."""
    size, device = place.size, place.device
    model = place.layer().eval()
    x = torch.randn(ROWS, size, device=device)
    if device != "cpu":
        same_as_on_a_cpu(place)
    with torch.no_grad():
        first = pl.drift(pl.program(model, 3), 3600.0)(x)
        pl.drift(pl.drift(pl.program(model, 4), 60.0), 1.0)
        require(
            torch.equal(first, pl.drift(pl.program(model, 3), 3600.0)(x)),
            "a realisation depends on earlier calls",
        )
        require_points(model, x)
        numbers, moments = iter(range(10**6)), iter(range(10**6))
        weights = size * size
        rows = [
            Row(
                "program, and drift to one time",
                median(lambda: pl.drift(pl.program(model, next(numbers)), 3600.0), device),
                weights, "weight",
            ),
            Row(
                "the same by program(time=)",
                median(lambda: pl.program(model, next(numbers), time=3600.0), device),
                weights, "weight",
            ),
            Row(
                "each further time",
                median(lambda: pl.drift(model, 10.0 + next(moments)), device),
                weights, "weight",
            ),
        ]  # fmt: skip

        def sequence() -> None:
            for _ in range(SEQUENCE):
                pl.program(model, next(numbers))
                for _ in range(len(FULL_TIMES)):
                    pl.drift(model, 10.0 + next(moments))(x)

        if full:
            name = f"{SEQUENCE} programmings x {len(FULL_TIMES)} times, a read of {ROWS} samples"
            count = SEQUENCE * len(FULL_TIMES) * weights
            read_once = place.layer(forward=once(24)).eval()
            require_points(read_once, x)
            together = median(lambda: many_points(read_once, x, SEQUENCE), device, repeats=3)
            rows.append(Row(name + ", once, 24 bits, in evaluate", together, count, "weight"))
            del read_once
            rows.append(Row(name, median(sequence, device, repeats=3), count, "weight"))
        rows += reads(place)
    exact = place.layer(forward=pl.IOParameters(is_perfect=True)).eval()
    with torch.no_grad():
        pl.inference.unprogram(exact)
        error = (exact(x) - x @ exact[0].weight.t()).abs().max()
    require(error < 1e-3, "a perfect read differs from torch's product")
    return rows


def models(size: int, threads: int) -> list[Row]:
    """Programming and drift of one tile with each noise model on a CPU: busy milliseconds."""
    found = []
    numbers, moments = iter(range(10**6)), iter(range(2, 10**6))
    for model in pl.noise_models.MODELS:
        memory = getattr(pl.noise_models, model)
        tile = pl.Tile(size, size, config(noise_model=memory()), seed=1, threads=threads)
        tile.weights = torch.randn(size, size, generator=torch.Generator().manual_seed(0)) / 8
        programming = tile.programming
        assert programming is not None
        for name, call in (
            ("program, drift", lambda p=programming: (p.program(next(numbers)), p.drift(1.0))),
            ("further time", lambda p=programming: p.drift(1.0 / next(moments))),
        ):
            row = f"{model}: {name}"
            found.append(Row(row, busy(call, threads), size * size, "weight"))
    return found


def steps(place: Place) -> list[Row]:
    """Hardware-aware training steps beside torch's, in float32 and with bfloat16 autocast."""
    size, device = place.size, place.device
    x = torch.randn(LARGE, size, device=device)

    def step_of(model: nn.Module, low: bool) -> Callable[[], None]:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step() -> None:
            optimizer.zero_grad()
            with torch.autocast(device.split(":")[0], dtype=torch.bfloat16, enabled=low):
                y = model(x)
            y.float().square().mean().backward()
            optimizer.step()

        return step

    plain = nn.Sequential(nn.Linear(size, size, bias=False)).to(device)
    found = []
    for low in (False, True) if device != "cpu" else (False,):
        beside = median(step_of(plain, low), device)
        for modifier, forward in (
            ("add_normal", pl.IOParameters()), ("noise_model", pl.IOParameters()),
            ("add_normal", once(24)), ("noise_model", once(24)),
        ):  # fmt: skip
            model = place.layer(modifier=modifier, forward=forward).train()
            before = model[0].weight.detach().clone()
            step_of(model, low)()
            require(not torch.equal(before, model[0].weight), "a step changed nothing")
            ms = median(step_of(model, low), device)
            reads = "" if forward == pl.IOParameters() else ", reads once, 24 bits"
            name = f"hardware-aware step, {modifier}, {LARGE} samples{reads}"
            found.append(Row(name + ", bfloat16" * low, ms, size * size, "weight", beside))
    return found


def evaluation(device: str, full: bool) -> list[Row]:
    """LeNet-5 on normal numbers: programmings times times, in one pass and one by one."""
    images, programmings, times = (
        (FULL_IMAGES, FULL_PROGRAMMINGS, FULL_TIMES) if full else (IMAGES, PROGRAMMINGS, TIMES)
    )
    torch.manual_seed(0)
    plain = lenet((28, 28), 10).to(device).eval()
    model = pl.convert_to_analog(plain, config(), seed=1).to(device).eval()
    x, y = torch.randn(images, 784), torch.randint(10, (images,))
    batches: list[tuple[Tensor, Tensor]] = [
        (a.to(device), b.to(device)) for a, b in zip(x.split(IMAGES), y.split(IMAGES), strict=True)
    ]

    def whole(model: nn.Module, **settings: object) -> pl.inference.InferenceReport:
        return pl.inference.evaluate(
            model, batches, times=times, programmings=programmings,
            **settings,  # type: ignore[arg-type]
        )  # fmt: skip

    def timed(model: nn.Module, **settings: object) -> tuple[float, pl.inference.InferenceReport]:
        begin = time.perf_counter()
        report = whole(model, **settings)
        _wait(device)
        return 1e3 * (time.perf_counter() - begin), report

    whole(copy.deepcopy(model))  # kernels are loaded, as for the digital model
    alone, single = timed(copy.deepcopy(model), prepare=lambda _: None)
    together, folded = timed(model)
    require(
        abs(single.values - folded.values).max() <= 2.0 / images, "a pass differs from the loop"
    )
    passes = programmings * len(times)
    with torch.no_grad():
        digital = passes * len(batches) * median(lambda: plain(batches[0][0]), device)
    count = passes * images
    name = f"LeNet-5, {images} images, {programmings} x {len(times)}, in one pass"
    return [
        Row(name, together, count, "sample", digital),
        Row("the same, one realisation at a time", alone, count, "sample", digital),
    ]


def main() -> None:
    """Measures all rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", type=int, default=512, help="side of the array")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tile", type=int, default=0, help="most inputs of an array; 0: all")
    parser.add_argument("--full", action="store_true", help="the rows that take minutes, too")
    parser.add_argument("--models", action="store_true", help="each noise model on a CPU, alone")
    parser.add_argument("--out", type=Path, help="a file for the table")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.models:
        rows = models(given.size, given.threads)
    else:
        place = Place(given.size, given.device, given.tile)
        rows = [
            *arrays(place, given.full),
            *steps(place),
            *evaluation(given.device, given.full),
        ]
    heads = ("row", "ms", "each", "torch ms", "ratio")
    table = aligned([heads, *(row.cells() for row in rows)])
    print(f"{given.size} x {given.size}, {given.device}, {given.threads} threads\n{table}")
    if given.out is not None:
        given.out.write_text(
            "\n".join(" | ".join(("", *cells, "")).strip() for cells in (
                heads, ("---",) * len(heads), *(row.cells() for row in rows)
            )) + "\n"
        )  # fmt: skip


if __name__ == "__main__":
    main()
