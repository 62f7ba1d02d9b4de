"""Trainings by one process or by several, for distributed_runs.py and test_distributed.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo  # before processes are forked, which would each take their time for it
from torch import nn
from torch.utils.checkpoint import checkpoint

import pulsora as pl
from distributed_models import LR, SINGLE, data, labels, mlp, outcome, perfect, train, whole
from pulsora import distributed
from pulsora.nn import (
    AnalogConv2d,
    AnalogGRU,
    AnalogLinear,
    AnalogLSTM,
    replayed_reads,
)
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distributed_models import World


def single(world: World) -> dict[str, Any]:
    return outcome(train(world, mlp(), check_every=1))


def without_bias_and_scaled(world: World) -> dict[str, Any]:
    return outcome(train(world, mlp(bias=False, weight_scaling=0.5)))


def analog_bias(world: World) -> dict[str, Any]:
    return outcome(train(world, mlp(digital_bias=False)))


def merged_noise(world: World) -> dict[str, Any]:
    device = pl.devices.ConstantStep(noise_merge="batch")
    return outcome(train(world, mlp(pl.SingleConfig(device=device))))


def other_cells(world: World) -> dict[str, Any]:
    """Cells with write noise, and with references; some ranks of four have no tile."""
    noisy = pl.presets.ReRamESSingle()
    return outcome(train(world, mlp(noisy), check_every=1))


def lrtt(world: World, **settings: Any) -> dict[str, Any]:
    config = pl.LRTTConfig(rank=2, visible=pl.devices.SoftBounds(), **settings)
    return outcome(train(world, mlp(config)))


def lrtt_batches(world: World) -> dict[str, Any]:
    return lrtt(world, transfer_every=2)


def lrtt_samples(world: World) -> dict[str, Any]:
    return lrtt(world, transfer_every=5, units_in_mbatch=False, ab_update="accumulated")


def lrtt_shared(world: World) -> dict[str, Any]:
    return lrtt(world, transfer_every=3, inject_io="shared", projection="exact", reinit="kaiming")


def transfers(world: World) -> dict[str, Any]:
    """Tiki-Taka v2, whose buffers, lines and schedules belong to the state."""
    return outcome(train(world, mlp(pl.TTv2(pl.devices.SoftBounds()))))


def transfers_of_samples(world: World) -> dict[str, Any]:
    """AGAD with a transfer at every second sample: choppers, means and running maxima."""
    settings = {"fast_lr": 0.1, "transfer_every": 2, "auto_scale": True}
    return outcome(train(world, mlp(pl.AGAD(pl.devices.SoftBounds(), **settings))))


def vectors(world: World) -> dict[str, Any]:
    """Pairs of arrays, of which each sample pulses a random one."""
    cells = [pl.devices.SoftBounds()] * 2
    return outcome(train(world, mlp(pl.VectorConfig(devices=cells, update_policy="single_random"))))


def one_sided(world: World) -> dict[str, Any]:
    config = pl.OneSidedConfig(device=pl.devices.SoftBounds(w_min=0.0), refresh_every=2)
    return outcome(train(world, mlp(config)))


def gated(world: World) -> dict[str, Any]:
    torch.manual_seed(5)
    config = pl.LRTTConfig(rank=2, transfer_every=2)
    layer = AnalogLinear(12, 6, config=config)
    gate = nn.Sequential(nn.Linear(12, 2), nn.Sigmoid()).requires_grad_(requires_grad=False)

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.gate = layer, gate

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x, self.gate(x).relu())

    return outcome(train(world, Gated()))


def unequal(world: World) -> dict[str, Any]:
    """Sums of losses, divided by all rows: exact whatever the ranks have; some have nothing."""
    model = world.wrap(mlp(), loss="sum")
    optimizer = AnalogSGD(model.parameters(), lr=LR)
    for step, counts in enumerate([(5, 3), (8, 0), (0, 8), (1, 7)]):
        x, y = world.mine(data(step, 8, 12), counts), world.mine(labels(step, 8), counts)
        loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
        whole = distributed.rows(model) if world.prepares else len(x)
        assert whole == 8
        optimizer.zero_grad()
        (loss / whole).backward()
        optimizer.step()
    return outcome(model)


def unequal_mean(world: World) -> dict[str, Any]:
    """To rounding; arrays without cells and noise show it."""
    model = mlp(perfect())
    model.append(nn.Linear(6, 6))
    model = train(world, model, counts=lambda step: [(5, 3), (7, 1), (8, 0), (4, 4)][step])
    inner = getattr(model, "module", model)
    return {str(i): [inner[i].weight.tolist(), inner[i].bias.tolist()] for i in (0, 2, 3)}


def given(world: World) -> dict[str, Any]:
    model = world.wrap(mlp(), loss="sum")
    optimizer = AnalogSGD(model.parameters(), lr=LR)
    counts = (2, 6)
    x, y = world.mine(data(0, 8, 12), counts), world.mine(labels(0, 8), counts)
    if world.prepares:
        with distributed.batch(model, counts if world.size > 1 else (8,)):
            out = model(x)
    else:
        out = model(x)
    (nn.functional.cross_entropy(out, y, reduction="sum") / 8).backward()
    optimizer.step()
    return outcome(model)


def accumulated(world: World) -> dict[str, Any]:
    """Two backward passes, clipped, and two forward passes in one backward; a layer is frozen."""
    model = mlp()
    model.append(nn.ReLU()).append(AnalogLinear(6, 6, config=SINGLE))
    model[2].analog_weight.requires_grad_(requires_grad=False)
    model = world.wrap(model)
    optimizer = AnalogSGD(model.parameters(), lr=LR)
    for step in range(3):
        optimizer.zero_grad()
        for part in range(2):
            x, z = (world.mine(data(10 * step + part + i, 8, 12)) for i in (0, 5))
            y = world.mine(labels(step, 8))
            loss = nn.functional.cross_entropy(model(x), y) + nn.functional.cross_entropy(
                model(z), y
            )
            (0.5 * loss).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        assert norm > 0.1
        optimizer.step()
    return outcome(model)


def penalised(world: World) -> dict[str, Any]:
    """Terms of the loss on weights, in layers with and without several tiles."""
    model = world.wrap(mlp())
    optimizer = AnalogSGD(model.parameters(), lr=LR)
    for step in range(3):
        optimizer.zero_grad()
        y = model(world.mine(data(step, 8, 12)))
        loss = nn.functional.cross_entropy(y, world.mine(labels(step, 8)))
        (loss + 0.1 * sum(model[i].weight.pow(2).sum() for i in (0, 2))).backward()
        optimizer.step()
    return outcome(model)


def convolution(world: World) -> dict[str, Any]:
    torch.manual_seed(5)
    config = pl.LRTTConfig(rank=2, transfer_every=20, units_in_mbatch=False)
    model: nn.Module = nn.Sequential(
        AnalogConv2d(2, 4, 3, config=SINGLE, groups=2),
        nn.ReLU(),
        AnalogConv2d(4, 3, 2, config=config),
        nn.Flatten(),
        AnalogLinear(27, 6, config=SINGLE),
    )
    model = world.wrap(model)
    optimizer = AnalogSGD(model.parameters(), lr=LR)
    for step in range(3):
        x, y = world.mine(data(step, 4, 2, 6, 6)), world.mine(labels(step, 4))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return outcome(model)


class Recurrent(nn.Module):
    """A recurrent layer, and a matrix on its last output."""

    def __init__(self, kind: type[Any], *, batch_first: bool) -> None:
        super().__init__()
        self.rnn = kind(5, 8, 2, batch_first=batch_first, config=SINGLE, bidirectional=True)
        self.last = AnalogLinear(16, 6, config=SINGLE)
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.rnn(x)
        return self.last(y[:, -1] if self.batch_first else y[-1])


def recurrent(world: World, kind: type[Any], *, batch_first: bool) -> dict[str, Any]:
    torch.manual_seed(5)
    model: nn.Module = Recurrent(kind, batch_first=batch_first)
    model = world.wrap(model, batch_dim=0 if batch_first else 1, loss="sum")
    optimizer = AnalogSGD(model.parameters(), lr=LR)
    for step, counts in enumerate([(4, 4), (8, 0)]):
        x, y = data(step, 8, 3, 5), world.mine(labels(step, 8), counts)
        x = world.mine(x, counts) if batch_first else world.mine(x.transpose(0, 1), counts, 1)
        optimizer.zero_grad()
        (nn.functional.cross_entropy(model(x), y, reduction="sum") / 8).backward()
        optimizer.step()
    return outcome(model)


def lstm(world: World) -> dict[str, Any]:
    return recurrent(world, AnalogLSTM, batch_first=True)


def gru_time_major(world: World) -> dict[str, Any]:
    return recurrent(world, AnalogGRU, batch_first=False)


def checkpointed(world: World) -> dict[str, Any]:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: Tensor) -> Tensor:
            options = {"use_reentrant": False, "context_fn": replayed_reads}
            y: Tensor = checkpoint(self.inner, x, **options)
            return y

    return outcome(train(world, Block()))


def alone(world: World) -> dict[str, Any]:
    """The model itself is the layer."""
    torch.manual_seed(5)
    return outcome(train(world, AnalogLinear(12, 6, config=SINGLE)))


def resumed(world: World) -> dict[str, Any]:
    """Goes on from the file of one process, and leaves one to be gone on from."""
    model = mlp()
    model.load_state_dict(torch.load(world.folder / "begun.pt", weights_only=True))
    model = train(world, model, range(2, 4))
    with whole(model):
        if world.rank == 0:
            torch.save(model.state_dict(), world.folder / "gone_on.pt")
    return outcome(model)


def with_digital(world: World) -> dict[str, Any]:
    """A digital layer, averaged by DistributedDataParallel: processes agree, one to rounding."""
    model = mlp(perfect())
    model.insert(1, nn.Linear(16, 16))
    model = train(world, model, check_every=1)
    return {"digital": getattr(model, "module", model)[1].bias.tolist()}


def digital_of_sums(world: World) -> dict[str, Any]:
    """Like `with_digital`, with unequal parts and a frozen layer."""
    model = mlp(perfect()).append(nn.Linear(6, 6)).append(nn.Linear(6, 6))
    last = model[4].requires_grad_(requires_grad=False)
    model = world.wrap(model, loss="sum", check_every=1)
    optimizer = AnalogSGD(model.parameters(), lr=LR)
    for step, counts in enumerate([(5, 3), (1, 7), (8, 0)]):
        x, y = world.mine(data(step, 8, 12), counts), world.mine(labels(step, 8), counts)
        loss = nn.functional.cross_entropy(model(x), y, reduction="sum") / 8
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert last.weight.grad is None
    return {"digital": [getattr(model, "module", model)[3].bias.tolist()]}


def mixed_precision(world: World) -> dict[str, Any]:
    """Digital weights are averaged, and cells follow them by the same pulses in each process."""
    config = pl.MixedPrecisionConfig(visible=pl.devices.SoftBounds(dw_min=0.002))
    model = train(world, mlp(config), check_every=1)
    inner = getattr(model, "module", model)
    assert sum(inner[i].tiles.grid[0][0].statistics()["pulses"] for i in (0, 2)) > 100
    return {str(i): [inner[i].weight.tolist(), inner[i].get_weights()[0].tolist()] for i in (0, 2)}


def hardware_aware(world: World, **settings: Any) -> dict[str, Any]:
    """Weights are parameters of torch, which DistributedDataParallel averages; reads have noise."""
    config = pl.InferenceConfig(clip="gaussian", clip_sigma=2.0, drop_connect=0.05, **settings)
    model = world.wrap(mlp(config, seed=3))
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.5)
    for step in range(4):
        x, y = world.mine(data(step, 8, 12)), world.mine(labels(step, 8))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    inner = getattr(model, "module", model)
    return {str(i): [inner[i].weight.tolist(), inner[i].bias.tolist()] for i in (0, 2)}


def hardware_aware_by_normal_noise(world: World) -> dict[str, Any]:
    return hardware_aware(world, modifier="add_normal", modifier_std=0.1)


def hardware_aware_by_a_noise_model(world: World) -> dict[str, Any]:
    return hardware_aware(world, modifier="noise_model", compensation="global")


# These train by `distributed_models.train`, as BY_TRAINING_STEP does.
SIMPLE = (
    single,
    without_bias_and_scaled,
    analog_bias,
    merged_noise,
    lrtt_batches,
    lrtt_samples,
    lrtt_shared,
    transfers,
    transfers_of_samples,
    vectors,
    one_sided,
)
EXACT: dict[str, Callable[[World], dict[str, Any]]] = {
    run.__name__: run
    for run in (
        *SIMPLE,
        gated,
        accumulated,
        penalised,
        convolution,
        checkpointed,
        other_cells,
        alone,
        resumed,
    )
}
# Of these, two ranks have unequal parts.
EXACT_OF_TWO = {run.__name__: run for run in (unequal, given, lstm, gru_time_major)}
ROUNDED = {
    run.__name__: run
    for run in (
        unequal_mean,
        with_digital,
        digital_of_sums,
        mixed_precision,
        hardware_aware_by_normal_noise,
        hardware_aware_by_a_noise_model,
    )
}

BY_TRAINING_STEP = (
    *SIMPLE,
    other_cells,
    unequal_mean,
    with_digital,
    mixed_precision,
)
