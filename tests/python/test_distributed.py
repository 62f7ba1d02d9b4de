"""Several processes train one model with the results of one."""

from __future__ import annotations

import copy
import os
import pickle
import re
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import distributed_cases as cases
import distributed_runs as runs
import pulsora as pl
from conftest import DEVICES, ROOT
from distributed_models import data, mlp, processes
from pulsora import distributed
from pulsora.distributed.rates import Times
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable

PERIPHERY = pl.IOParameters(noise_management="average_abs_max")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture(scope="module")
def pair(folder: Path) -> list[dict[str, Any]]:
    return processes(runs.__file__, 2, folder)


@cache
def by_one(name: str, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """The result of a single process, without `prepare`."""
    run = (cases.EXACT | cases.EXACT_OF_TWO | cases.ROUNDED)[name]
    return run(runs.World(folder=folder, device=device))


@pytest.mark.parametrize("name", [*cases.EXACT, *cases.EXACT_OF_TWO])
def test_two_processes_have_the_bits_of_one(
    name: str, pair: list[dict[str, Any]], folder: Path
) -> None:
    wanted = by_one(name, folder)
    assert len(wanted) > 0
    for found in pair:
        assert found[name] == wanted


@pytest.mark.parametrize("name", list(cases.EXACT))
def test_two_processes_that_share_the_pulses_have_the_bits_of_one(
    name: str, pair: list[dict[str, Any]], folder: Path
) -> None:
    wanted = by_one(name, folder)
    assert [found["shared"][name] for found in pair] == [wanted, wanted]


@pytest.mark.parametrize("how", ["sharded", "exchanged"])
@pytest.mark.parametrize("run", cases.BY_TRAINING_STEP)
def test_sharded_cells_and_exchanges_of_recorded_steps_have_the_bits_of_one(
    run: Callable[[runs.World], dict[str, Any]],
    how: str,
    pair: list[dict[str, Any]],
    folder: Path,
) -> None:
    name = run.__name__
    wanted = by_one(name, folder) if name in cases.EXACT else pair[0][name]
    assert [found[how][name] for found in pair] == [wanted] * 2


def test_each_rank_stores_the_cells_of_its_tiles_alone(
    pair: list[dict[str, Any]], folder: Path
) -> None:
    (before, one), (_, other) = (found["sharded cells"] for found in pair)
    for stored, mine, theirs in zip(before, one, other, strict=True):
        assert max(mine, theirs) == stored > min(mine, theirs)
    assert one != before != other
    # A state without some cells loads everywhere.
    model = mlp()
    model.load_state_dict(torch.load(folder / "sharded.pt", weights_only=True))
    assert [tile.memory_bytes for tile in model[0].tiles] == before
    went_on = runs.outcome(runs.train(runs.World(), model, range(4, 6)))
    assert went_on == runs.outcome(runs.train(runs.World(), mlp(), range(6)))


def test_ranks_choose_alike_from_which_rows_on_pulses_are_shared(
    pair: list[dict[str, Any]],
) -> None:
    one, other = (found["chosen"] for found in pair)
    assert one["least"] == other["least"]
    assert one["states"] == other["states"]
    pulsed, adapter, ideal, small = one["least"]
    assert 0 < pulsed[0] < 10**9
    assert pulsed[1] == adapter[1] == 256
    assert ideal is None
    assert small is None
    lines = one["table"].splitlines()
    assert other["table"] == ""
    assert [line.split()[0] for line in lines] == ["layer", "0", "1", "2", "3"]
    assert lines[1].endswith(f"from {pulsed[0]} rows; recorded, from 256")
    assert lines[4].endswith("never: few cells, or no pulses")


def test_pulses_are_shared_where_they_take_longer_than_messages() -> None:
    assert Times(row=2e-6, message=64e-6).least_rows(2).plain == 64
    assert Times(row=2e-6, message=60e-6).least_rows(4).plain == 40
    assert Times(row=0.0, message=1.0).least_rows(2).plain == 10**9


@pytest.mark.parametrize("name", list(cases.ROUNDED))
def test_property_75_what_is_averaged_is_that_of_one_process_to_rounding(
    name: str, pair: list[dict[str, Any]], folder: Path
) -> None:
    wanted = by_one(name, folder)
    assert pair[0][name] == pair[1][name]
    found = pair[0][name]
    for key, values in wanted.items():
        for mine, theirs in zip(found[key], values, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize("run", cases.BY_TRAINING_STEP)
def test_training_steps_of_two_processes_have_the_bits_of_the_plain_loop(
    run: Callable[[runs.World], dict[str, Any]], pair: list[dict[str, Any]], folder: Path
) -> None:
    """A TrainingStep averages digital gradients itself, as DistributedDataParallel does."""
    name = run.__name__
    wanted = by_one(name, folder) if name in cases.EXACT else pair[0][name]
    assert [found["recorded"][name][0] for found in pair] == [wanted] * 2


def test_an_evaluation_by_one_rank_changes_nothing(
    pair: list[dict[str, Any]], folder: Path
) -> None:
    assert [found["evaluated"] for found in pair] == [by_one("single", folder)] * 2


def test_what_two_processes_saved_goes_on_in_one(pair: list[dict[str, Any]], folder: Path) -> None:
    assert pair[0]["resumed"] == by_one("single", folder)
    model = mlp()
    model.load_state_dict(torch.load(folder / "gone_on.pt", weights_only=True))
    went_on = runs.outcome(runs.train(runs.World(), model, range(4, 6)))
    assert went_on == runs.outcome(runs.train(runs.World(), mlp(), range(6)))


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_processes_on_gpus_have_the_bits_of_one(tmp_path: Path) -> None:
    """Two processes with a GPU each (NCCL) if there are two GPUs, or else on one GPU (gloo)."""
    pair = processes(runs.__file__, 2, tmp_path, "cuda")
    wrong = []
    for name in [*cases.EXACT, *cases.EXACT_OF_TWO]:
        wanted = by_one(name, tmp_path, "cuda")
        shared = name in pair[0]["shared"]
        wrong += [f"{name} {i}" for i, found in enumerate(pair) if found[name] != wanted]
        wrong += [
            f"shared {name} {i}"
            for i, found in enumerate(pair)
            if shared and found["shared"][name] != wanted
        ]
    for run in cases.BY_TRAINING_STEP:
        name = run.__name__
        wanted = by_one(name, tmp_path, "cuda") if name in cases.EXACT else pair[0][name]
        for how in ("sharded", "exchanged"):
            wrong += [f"{how} {name} {i}" for i, p in enumerate(pair) if p[how][name] != wanted]
        wrong += [
            f"recorded {name} {i}" for i, p in enumerate(pair) if p["recorded"][name][0] != wanted
        ]
        # Unequal parts come in four shapes; gloo waits for the GPU.
        is_recorded = torch.cuda.device_count() > 1 and run is not cases.unequal_mean
        if (pair[0]["recorded"][name][1][-1] > 0) != is_recorded:
            wrong.append(f"recorded {name}: {pair[0]['recorded'][name][1]} graphs")
    assert wrong == []
    for name in cases.ROUNDED:
        assert pair[0][name] == pair[1][name]


@pytest.mark.nightly
def test_four_processes_have_the_bits_of_one(tmp_path: Path) -> None:
    four = processes(runs.__file__, 4, tmp_path)
    for name in cases.EXACT:
        assert [found[name] for found in four] == [by_one(name, tmp_path)] * 4
        assert [found["shared"][name] for found in four] == [by_one(name, tmp_path)] * 4


@pytest.mark.nightly
def test_the_example_says_the_same_in_two_processes(tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    assert said_by([], tmp_path) == said_by([torchrun], tmp_path) != ""


@pytest.mark.nightly
def test_the_example_says_the_same_on_two_machines(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    torchrun = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}"]
    torchrun += ["--rdzv-id", "machines"]
    assert said_by([], tmp_path) == said_by([torchrun, torchrun], tmp_path) != ""


def said_by(launchers: list[list[str]], folder: Path) -> str:
    """Runs the example in one process, or by launchers together; returns what it prints."""
    running = [
        subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, *launcher, str(ROOT / "examples" / "15_distributed.py")],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for launcher in launchers or [[]]
    ]
    said = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return "".join(said)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "other_seed",
            "RuntimeError: .* the size or the seed of 'AnalogLinear' on rank 1 is not that",
        ),
        ("other_config", "RuntimeError: .* the configuration of '1' on rank 1 is not that"),
        (
            "other_weights",
            "RuntimeError: .* the state of '2.bias' on rank 1 is not that .* load the same",
        ),
        (
            "other_layers",
            "RuntimeError: .* the model of rank 1 has other layers than that of rank 0",
        ),
        ("unprepared", r"UserWarning: .* trains by itself; call pulsora\.distributed\.prepare"),
        ("without_average", "RuntimeError: .* have to be averaged .*DistributedDataParallel"),
        ("outside", "RuntimeError: .* read outside a forward pass of that model"),
        ("other_shapes", r"ValueError: .* shape \[\d, 3\] on rank \d, but \[\d, 3\] on rank \d"),
        (
            "batch_second",
            r"ValueError: .* reads x of shape \[5, 2, '...'\] where this rank has 2 rows",
        ),
        ("packed", "ValueError: .* PackedSequence.* give padded sequences"),
        (
            "diverged",
            "RuntimeError: .* after 2 steps, the state of '2' on rank 1 is not that on rank 0",
        ),
        (
            "other_gradients",
            "RuntimeError: .* layer '2' has a gradient on rank 0, and none on 1; a step is made",
        ),
        ("no_gradients", "RuntimeError: .* layer '0' has a gradient on rank 0, and none on 1;"),
        (
            "no_step",
            r"RuntimeError: .* ranks \[0\] are in a step .* ranks \[1\] in the next forward pass",
        ),
    ],
)
def test_ranks_that_disagree_are_told(name: str, message: str, pair: list[dict[str, Any]]) -> None:
    for found in pair:
        assert re.match(message, found["refusals"][name]), found["refusals"][name]


@pytest.mark.parametrize("name", ["single", "lrtt_samples", "convolution", "gated"])
def test_one_prepared_process_is_as_one_that_is_not(name: str, folder: Path) -> None:
    run = cases.EXACT[name]
    assert run(runs.World(prepares=True)) == by_one(name, folder)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            pl.SingleConfig(forward=PERIPHERY),
            r"'0' has forward\..* = 'average_abs_max'.* 'abs_max'",
        ),
        (pl.LRTTConfig(backward=PERIPHERY), r"'0' has backward\..* = 'average_abs_max'"),
        (pl.LRTTConfig(rank=1, projection="reuse"), "'0' has projection = 'reuse'.* 'analog' or"),
    ],
)
def test_what_needs_all_samples_in_order_is_refused(config: pl.TileConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distributed.prepare(nn.Sequential(AnalogLinear(3, 2, config=config)))


def test_bad_arguments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(AnalogLinear(3, 2))
    with pytest.raises(ValueError, match="loss = 'max': write 'mean' or 'sum'"):
        distributed.prepare(model, loss="max")
    with pytest.raises(ValueError, match="updates = 'some': write 'auto', 'all' or 'shared'"):
        distributed.prepare(model, updates="some")
    with pytest.raises(ValueError, match="cells = 'some': write 'all' or 'sharded'"):
        distributed.prepare(model, cells="some")
    with pytest.raises(ValueError, match="updates = 'all' and cells = 'sharded': a rank would"):
        distributed.prepare(model, updates="all", cells="sharded")
    with pytest.raises(ValueError, match="check_every must be at least 0"):
        distributed.prepare(model, check_every=-1)
    with pytest.raises(ValueError, match="no analog layers"):
        distributed.prepare(nn.Linear(3, 2))
    for call in (distributed.rows, distributed.check):
        with pytest.raises(ValueError, match="was not prepared"):
            call(model)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"WORLD_SIZE = 2.*init_process_group"):
        distributed.prepare(model)
    monkeypatch.delenv("WORLD_SIZE")
    distributed.prepare(model)
    with pytest.raises(ValueError, match="the layer '0' was prepared before"):
        distributed.prepare(model)
    with pytest.raises(RuntimeError, match="no forward pass"):
        distributed.rows(model)
    with (
        pytest.raises(ValueError, match=r"counts = \[1, 2\]: give the rows of each of 1 ranks"),
        distributed.batch(model, [1, 2]),
    ):
        pass
    with pytest.raises(ValueError, match=r"dimension 0 \(batch_dim\)"):
        model()


def test_a_copy_is_on_its_own() -> None:
    model = distributed.prepare(mlp())
    other = copy.deepcopy(model)
    other[0](data(0, 3, 12))  # outside a pass
    before = runs.outcome(model)
    optimizer = AnalogSGD(other.parameters(), lr=0.1)
    other(data(0, 3, 12)).sum().backward()
    optimizer.step()
    assert runs.outcome(model) == before != runs.outcome(other)
    with pytest.raises(TypeError, match=r"save model\.state_dict"):
        pickle.dumps(model)


def test_one_rank_may_evaluate_a_gated_read_of_tiles_alone() -> None:
    layer = distributed.prepare(AnalogLinear(4, 3, config=pl.LRTTConfig(rank=1)))
    before = layer.tiles.grid[0][0].counters
    with torch.no_grad():
        layer(torch.ones(2, 4), torch.ones(1))
    assert layer.tiles.grid[0][0].counters == before
    assert layer.tiles.grid[0][0].evaluated == 2


@pytest.mark.parametrize(
    ("other", "least", "most", "cause"),
    [("sleeps", 3.0, 12.0, "Timed out"), ("ends", 0.0, 4.0, "closed by peer|reset by peer")],
)
def test_a_rank_waits_as_long_as_the_default_group_says(
    other: str, least: float, most: float, cause: str, tmp_path: Path
) -> None:
    program = str(Path(runs.__file__).with_name("distributed_timeout.py"))
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, program, tmp_path, "4", other],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    waited, _, said = done.stdout.partition(" ")
    assert least < float(waited) < most, done.stderr
    assert re.match("rank 0 gets no answer in step 1: another rank failed, waits or made", said)
    assert re.search(cause, said), said
