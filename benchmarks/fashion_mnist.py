"""What pulses and the low-rank adapter cost in accuracy: one layer of a Fashion-MNIST network.

    python benchmarks/fashion_mnist.py [--device cuda:0] [--rows NAME ...] [--data FOLDER] [--publish]

The network is 784-256-10 with sigmoids, trained by SGD on the mean cross entropy: batch 128 (the
last, incomplete batch is dropped), 5 epochs, learning rate 0.1, halved from epoch 4. Pixels enter
as (v - 0.2860) / 0.3530, initial weights are uniform within +-1/sqrt(inputs). Layer 1 is one tile
with perfect periphery; biases and layer 2 are digital. Its devices are ConstantStep with bounds
of +-1 and no spreads (unless a row says otherwise), pulse trains have at most 31 slots under both
managements. Transfers come every 100 mini-batches unless a row says otherwise. Rows called digital
use floating-point updates of these arrays. The score is the test accuracy after the last epoch,
adapter included; the time of an epoch covers its training alone.

Every finished run is kept in the folder --out, so that the program can be stopped and started
again, and so that runs on the CPU and on a GPU come into one table.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

import pulsora as pl
from fashion_mnist_report import final_accuracy, table, verdict, write_report
from fashion_mnist_rows import BATCH, EPOCHS, HIDDEN, ROWS
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD
from pulsora.training import data as datasets
from pulsora.training.run import accuracy, pulse_report

if TYPE_CHECKING:
    from fashion_mnist_report import Results
    from fashion_mnist_rows import Row

ROOT = Path(__file__).resolve().parent.parent


def place_of(device: str) -> str:
    """'cpu' or 'cuda'."""
    return device.partition(":")[0]


def machine_name(device: str) -> str:
    """The processor or the GPU, as the system names it."""
    if place_of(device) == "cuda":
        return torch.cuda.get_device_name(torch.device(device))
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else platform.processor()
    return f"{name}, {torch.get_num_threads()} threads"


def network(row: Row, seed: int, data: datasets.Dataset, device: str) -> nn.Sequential:
    """The network of a row with its initial weights, which depend on the seed alone."""
    torch.manual_seed(seed)
    first, second = nn.Linear(data.features, HIDDEN), nn.Linear(HIDDEN, data.classes)
    layer = AnalogLinear(
        data.features,
        HIDDEN,
        config=row.config(),
        seed=seed,
        max_input_size=0,
        max_output_size=0,
        device=device,
        threads=torch.get_num_threads(),
    )
    layer.set_weights(first.weight, first.bias)
    layer.requires_grad_(not row.frozen)
    return nn.Sequential(layer, nn.Sigmoid(), second).to(device)


def run(
    row: Row, seed: int, data: datasets.Dataset, device: str, progress: Progress
) -> dict[str, Any]:
    """Trains one network; returns what the table and the figure need."""
    model = network(row, seed, data, device)
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[3], gamma=0.5)
    train_x, train_y, test_x, test_y = (
        torch.from_numpy(part).to(device)
        for part in (data.train_x, data.train_y, data.test_x, data.test_y)
    )
    steps = len(train_x) // BATCH
    task = progress.add_task(f"{row.name}, seed {seed}", total=EPOCHS, status="")
    epochs = []
    for epoch in range(EPOCHS):
        start = time.perf_counter()
        total = torch.zeros((), dtype=torch.float64, device=device)
        order = torch.from_numpy(datasets.shuffled(len(train_x), seed, epoch)).to(device)
        for chosen in order.split(BATCH)[:steps]:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(train_x[chosen]), train_y[chosen])
            loss.backward()
            optimizer.step()
            total += loss.detach()
        mean_loss = total.item() / steps  # a GPU is waited for here, and nowhere before
        seconds = time.perf_counter() - start
        schedule.step()
        score = round(100.0 * accuracy(model, test_x, test_y), 6)
        epochs.append({"loss": mean_loss, "accuracy": score, "seconds": seconds})
        progress.update(task, advance=1, status=f"{score:.2f} %, {seconds:.2f} s per epoch")
    progress.remove_task(task)
    return {
        "settings": row.settings(),
        "machine": machine_name(device),
        "epochs": epochs,
        "report": pulse_report(model),
    }


def stored_path(row: Row, seed: int, place: str, folder: Path) -> Path:
    """Where the result of one run is kept."""
    name = row.name.replace(" ", "_").replace("%", "pct").replace(",", "").replace("=", "")
    return folder / place / f"{name}_{seed}.json"


def stored_results(folder: Path) -> Results:
    """What has been run so far, on the CPU and on a GPU; not what other settings gave."""
    results: Results = {"cpu": {}, "cuda": {}}
    for place, rows in results.items():
        for row in ROWS:
            for seed in row.seeds:
                path = stored_path(row, seed, place, folder)
                found = json.loads(path.read_text()) if path.is_file() else None
                if found is not None and found["settings"] == row.settings():
                    rows.setdefault(row.name, {})[seed] = found
    return results


def parse() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:NUMBER")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument(
        "--rows", nargs="+", default=[""], help="parts of row names; all by default"
    )
    parser.add_argument(
        "--part",
        default="1/1",
        help="I/N: only every N-th run, from the I-th on, so that N processes can share the work",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build/fashion_mnist")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="write docs/explain/results.md, its figure and benchmarks/results/fashion_mnist.json",
    )
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.chosen = [row for row in ROWS if any(part in row.name for part in options.rows)]
    if not options.chosen:
        parser.error(f"no row contains {options.rows}; there are {[row.name for row in ROWS]}")
    part, _, parts = options.part.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        parser.error(f"part = {options.part}: give I/N with I from 1 to N, such as 1/2")
    options.part, options.parts = int(part), int(parts)
    try:
        options.dataset = datasets.idx_folder(options.data, mean=0.2860, std=0.3530)
        pl.Tile(1, 1, device=options.device)
    except datasets.DataError as error:
        parser.error(f"{error} (Debian: apt install dataset-fashion-mnist)")
    except (pl.DeviceError, ValueError) as error:
        parser.error(str(error))
    return options


def main() -> None:
    """Runs what has not been run yet, and writes the report."""
    options = parse()
    place = place_of(options.device)
    console = Console()
    torch.set_num_threads(options.threads)
    # Small layers are bound by the host there, and a thread for the backward pass only adds to it.
    torch.autograd.set_multithreading_enabled(place == "cpu")
    (options.out / place).mkdir(parents=True, exist_ok=True)
    known = stored_results(options.out)[place]
    # First seeds first: a table with all rows is worth more than three seeds of one.
    jobs = sorted(((row, seed) for row in ROWS for seed in row.seeds), key=lambda job: job[1])
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
        console=console,
    ) as progress:
        for row, seed in jobs[options.part - 1 :: options.parts]:
            if row not in options.chosen or seed in known.get(row.name, {}):
                continue
            result = run(row, seed, options.dataset, options.device, progress)
            path = stored_path(row, seed, place, options.out)
            path.with_suffix(".part").write_text(json.dumps(result) + "\n")
            path.with_suffix(".part").replace(path)
            score = final_accuracy(result)
            seconds = sum(epoch["seconds"] for epoch in result["epochs"]) / EPOCHS
            console.print(
                f"{row.name}, seed {seed}: {score:.2f} %, {verdict(row, {place: score})}, "
                f"{seconds:.2f} s per epoch",
                highlight=False,
            )
    results = stored_results(options.out)
    protocol = (__doc__ or "").split("\n\n")[2].replace("\n", " ")
    if options.publish:
        page, figure = ROOT / "docs/explain/results.md", ROOT / "docs/images/fashion_mnist.png"
        numbers = ROOT / "benchmarks/results/fashion_mnist.json"
    else:
        page, figure = options.out / "results.md", options.out / "fashion_mnist.png"
        numbers = options.out / "fashion_mnist.json"
    write_report(results, protocol, page, figure, numbers)
    print(table(results))


if __name__ == "__main__":
    main()
