"""Layers whose weight is a parameter of torch under torch.distributed.fsdp, with one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import distributed, nn

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

fully_shard = pytest.importorskip("torch.distributed.fsdp").fully_shard
X = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
AWARE = pl.InferenceConfig(forward=pl.IOParameters(is_perfect=True))


@pytest.fixture(autouse=True)
def _processes(tmp_path: Path) -> Iterator[None]:
    store = f"file://{tmp_path}/store"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def sharded(config: pl.config.TileConfig | None) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    if config is not None:
        model = pl.convert_to_analog(model, config, seed=1)
    mesh = distributed.device_mesh.init_device_mesh("cpu", (1,))
    fully_shard(model[0], mesh=mesh)
    made: nn.Module = fully_shard(model, mesh=mesh)
    return made


def trained(model: nn.Module) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(X).square().mean().backward()
        optimizer.step()
    return [each.full_tensor() for each in model.parameters()]  # type: ignore[attr-defined]


def test_layers_with_a_torch_weight_train_as_digital_ones() -> None:
    for found, wanted in zip(trained(sharded(AWARE)), trained(sharded(None)), strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_model_is_programmed_with_whole_weights() -> None:
    model = sharded(AWARE).eval()
    with pytest.raises(RuntimeError, match="sharded over processes"):
        pl.program(model)
    for part in (model, model[0]):  # type: ignore[index]
        part.unshard()
    with torch.no_grad():
        assert pl.program(model)(X).isfinite().all()


def test_cells_do_not_follow_a_part_of_a_weight() -> None:
    with pytest.raises(RuntimeError, match="MixedPrecisionConfig"):
        trained(sharded(pl.MixedPrecisionConfig()))
