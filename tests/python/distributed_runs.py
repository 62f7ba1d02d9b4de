"""Trainings for test_distributed.py, by one process or by several.

Called as a program, `distributed_runs.py PROCESSES FOLDER DEVICE`, it starts processes, which make
all runs together; FOLDER/<rank>.json then says what each rank came to.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

import distributed_cases as cases
import distributed_refusals
import pulsora as pl
from distributed_models import World, data, mlp, outcome, train
from pulsora import distributed
from pulsora.nn import AnalogLinear

if TYPE_CHECKING:
    from collections.abc import Callable


def evaluated(world: World) -> dict[str, Any]:
    """Rank 0 evaluates alone, which changes nothing."""
    model = world.wrap(mlp())
    if world.rank == 0:
        with torch.no_grad():
            x = data(3, 5, 12).to(world.device)
            first, second = model(x), model(x)
        assert not torch.equal(first, second)  # other noise
    distributed.check(model)
    return outcome(train(World(world.rank, world.size, device=world.device), model))


def sharded_cells(world: World) -> list[list[int]]:
    """Bytes of each tile of a layer whose cells are sharded, before and after; saves its state."""
    model = mlp()
    array = model[0].tiles
    before = [tile.memory_bytes for tile in array]
    train(dataclasses.replace(world, cells="sharded"), model)
    if world.rank == 0:
        torch.save(model.state_dict(), world.folder / "sharded.pt")
    return [before, [tile.memory_bytes for tile in array]]


def chosen(world: World) -> dict[str, Any]:
    """Large layers whose pulses are shared by choice: from how many rows on, and the table."""
    configs = pl.SingleConfig(), pl.LRTTConfig(rank=2, transfer_every=1), pl.IdealConfig()
    layers = [AnalogLinear(420, 420, seed=n, config=each) for n, each in enumerate(configs)]
    model = torch.nn.Sequential(*layers, AnalogLinear(420, 3, seed=9)).to(world.device)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        distributed.prepare(model, verbose=True)
    updates = [model._pulsora_process_group.updates.get(id(each.tiles)) for each in model]
    least = [each and list(each.least) for each in updates]
    return {"least": least, "table": printed.getvalue(), "states": outcome(model)}


def begin(world: World) -> None:
    """Starts torch.distributed on this rank."""
    torch.set_num_threads(1)
    alone = world.device != "cpu" and torch.cuda.device_count() >= world.size
    dist.init_process_group(
        "nccl" if alone else "gloo",
        init_method=f"file://{world.folder}/store",
        rank=world.rank,
        world_size=world.size,
    )


def run_all(world: World) -> dict[str, Any]:
    begin(world)
    runs = cases.EXACT | ({**cases.EXACT_OF_TWO, **cases.ROUNDED} if world.size == 2 else {})
    found: dict[str, Any] = {name: run(world) for name, run in runs.items()}
    sharing = dataclasses.replace(world, updates="shared")
    found["shared"] = {name: run(sharing) for name, run in cases.EXACT.items()}
    by_step = [run for run in cases.BY_TRAINING_STEP if run.__name__ in runs]
    sharding = dataclasses.replace(world, cells="sharded")
    found["sharded"] = {run.__name__: run(sharding) for run in by_step}
    exchanging = dataclasses.replace(sharing, exchanges=True)
    found["exchanged"] = {run.__name__: run(exchanging) for run in by_step}
    found["recorded"] = {}
    for run in cases.BY_TRAINING_STEP if world.size == 2 else ():
        recording = dataclasses.replace(sharing, recorded=[])
        found["recorded"][run.__name__] = run(recording), recording.recorded
    found["evaluated"] = evaluated(world)
    found["sharded cells"] = sharded_cells(world)
    if world.size == 2:
        found["chosen"] = chosen(world)
    if world.size == 2 and world.device == "cpu":
        found["refusals"] = distributed_refusals.refusals(world.rank)
    return found


def one_of(
    rank: int, size: int, folder: Path, device: str, run: Callable[[World], dict[str, Any]]
) -> None:
    """Run one process; several processes may share a GPU."""
    if device != "cpu":
        gpu = rank % torch.cuda.device_count()
        torch.cuda.set_device(gpu)
        device = f"cuda:{gpu}"
    found = run(World(rank, size, prepares=True, folder=folder, device=device))
    (folder / f"{rank}.json").write_text(json.dumps(found))


def main(run: Callable[[World], dict[str, Any]] = run_all) -> int:
    size, folder, device = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    if device != "cpu":  # a GPU cannot be used behind a fork
        torch.multiprocessing.spawn(one_of, (size, folder, device, run), nprocs=size)
        return 0
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                one_of(rank, size, folder, device, run)
                code = 0
            except BaseException:  # noqa: BLE001 - a child must not go on as its parent
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main())
