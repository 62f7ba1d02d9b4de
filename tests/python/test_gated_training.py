"""Models with gated adapters in torch's ways of training: compiled, and in several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from conftest import in_child
from pulsora.nn import GatedAdapter, LearnedGate, MixtureGate

ROWS = 8


def adapted(device: str = "cpu") -> nn.Module:
    torch.manual_seed(0)
    gates = (LearnedGate(6, 2, hidden=4), MixtureGate(2))
    model = nn.Sequential(
        GatedAdapter(nn.Linear(6, 5), 2, gates[0], seed=1),
        nn.Tanh(),
        GatedAdapter(nn.Linear(5, 3), 1, gates[1], adapters=2, seed=2),
    )
    for part in model:
        if isinstance(part, GatedAdapter):
            part.base.requires_grad_(False)  # noqa: FBT003 - torch's own
            nn.init.normal_(part.a, 0.0, 0.3)
    return model.to(device)


def trained(model: nn.Module, first: int = 0, last: int = ROWS) -> list[torch.Tensor]:
    """The parameters after some steps on rows of the same batches."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.3)
    device = next(model.parameters()).device
    rng = torch.Generator().manual_seed(3)
    for _ in range(4):
        x = torch.randn(ROWS, 6, generator=rng)[first:last].to(device)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def moved(before: list[torch.Tensor], after: list[torch.Tensor]) -> int:
    return sum(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_compiled_model_is_one_graph_and_trains_the_same(device: str) -> None:
    before = [p.detach().clone() for p in adapted(device).parameters()]
    plain = trained(adapted(device))
    compiled = torch.compile(adapted(device), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(trained(compiled), plain, rtol=1e-5, atol=1e-6)
    assert moved(before, plain) == len(plain) - 4  # all but the weights and biases of the bases


def _part(rank: int, folder: Path) -> nn.Module:
    """Trains with one of two ranks; the caller keeps the wrapped model until the process ends.

    Freed together with its process group, a DistributedDataParallel model can wait for a thread of
    Gloo while that thread waits for Python's lock (torch 2.13).
    """
    torch.set_num_threads(1)  # the forked process lacks the threads of its parent
    store = distributed.FileStore(str(folder / "store"), 2)
    patience = timedelta(seconds=60)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=patience)
    parallel = DistributedDataParallel(adapted())
    half = ROWS // 2
    torch.save(trained(parallel, rank * half, (rank + 1) * half), folder / f"{rank}.pt")
    return parallel


@pytest.mark.skipif(not distributed.is_available(), reason="torch without distributed")
def test_two_processes_train_what_one_trains(tmp_path: Path) -> None:
    """Each sees half of every batch, and DDP takes the mean of their gradients."""

    def both() -> None:
        rank = int(os.fork() == 0)
        _kept = _part(rank, tmp_path)
        if rank == 1:
            os._exit(0)
        assert os.wait()[1] == 0
        os._exit(0)  # before _kept is freed

    in_child(both)
    plain = trained(adapted())
    made = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    for a, b in zip(*made, strict=True):
        assert torch.equal(a, b)
    torch.testing.assert_close(made[0], plain, rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
def test_the_study_of_adapters_makes_its_table_and_figure(tmp_path: Path) -> None:
    study = Path(__file__).parents[2] / "benchmarks" / "adapter_study.py"
    short = ["--steps", "6", "--pretraining", "6", "--seeds", "1", "--out", str(tmp_path)]
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(study), *short],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    ways = ["torch LoRA", "pulsed, digital base", "pulsed, analog base", "torch, noisy analog base"]
    assert all(f"{way} " in done.stdout for way in ways), done.stdout
    assert len(json.loads((tmp_path / "adapters.json").read_text())) >= len(ways)
    assert (tmp_path / "adapters.png").stat().st_size > 0
