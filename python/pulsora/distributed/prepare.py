"""Preparation of models for several processes of torch.distributed, and checks of their states."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from torch import distributed as dist
from torch import nn

from pulsora._internal.checks import require_at_least
from pulsora.distributed.agreement import timeout_of
from pulsora.distributed.process_group import ProcessGroup
from pulsora.distributed.rates import choose_least_rows, table
from pulsora.distributed.sharded_update import may_share
from pulsora.distributed.states import states
from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.nn.base import AnalogModule
from pulsora.nn.recurrent_base import AnalogRNNBase
from pulsora.nn.tiles.followed_weights import FollowedWeights
from pulsora.nn.tiles.layer_names import set_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

__all__ = ["batch", "check", "gathered", "prepare", "rows"]


def prepare(
    model: nn.Module,
    *,
    loss: str = "mean",
    batch_dim: int = 0,
    check_every: int = 0,
    updates: str = "auto",
    cells: str = "all",
    weights: str = "all",
    reshard_after_forward: bool = True,
    group: dist.ProcessGroup | None = None,
    verbose: bool = False,
) -> nn.Module:
    """Makes the processes of torch.distributed train one model, with the bits of one process.

    The global batch is the rows of the ranks, one after another; the numbers of rows are exchanged
    once in a forward pass. Under `torch.no_grad()` every rank is independent: it may evaluate any
    rows, and its reads are not counted.

    Args:
        model: A complete model, made from the same seeds and in the same state on every rank.
        loss: 'mean' if each rank has the mean loss of its rows, torch's default. 'sum' if the loss
            of the global batch is the sum of the losses of the ranks; divide by `rows(model)` for
            the mean.
        batch_dim: The dimension of the rows in the model's first input.
        check_every: Number of optimiser steps between comparisons of all states; 0 for never.
        updates: Which ranks make the pulses of a layer. 'all': every rank, for all tiles. 'shared':
            every rank for some layers, or some tiles of layers, whose states it sends to others.
            'auto': shared in large layers of pulsed cells, for batches of so many rows that it is
            faster, in recorded steps of 256. For plain steps, pulses and messages are timed here.
            The results are equal.
        cells: Which ranks store the parameters of cells. 'all': every rank, of all tiles.
            'sharded': each rank those of the tiles that it pulses, and pulses are shared in all
            layers. The results are equal.
        weights: Which ranks store weights. 'all': every rank, of all tiles. 'sharded': each rank
            those of the tiles that it pulses, and their cells; the weights of a layer are gathered
            for each of its reads. Then evaluations are made by all ranks together, and weights are
            read, written and saved in a block of `gathered`. The results are equal.
        reshard_after_forward: Whether sharded weights are freed between a layer's forward and
            backward reads, and gathered twice. That is less memory; False is fewer messages.
        group: The processes; by default all, in a new group, so that messages of analog layers do
            not mix with others. It has the timeout of the default group.
        verbose: Whether rank 0 prints what was timed for updates = 'auto', and from how many rows
            of a batch on the pulses of each layer are shared.

    Returns:
        The model itself.

    Raises:
        ValueError: if the model has no analog layer, has been prepared before, or has tiles whose
            reads or updates need samples that are on other ranks: noise_management =
            'average_abs_max', projection = 'reuse'. With sharded weights also for layers whose
            weights are digital parameters.
        RuntimeError: if the ranks do not agree on layers, configurations, seeds or states, or there
            are several processes without `torch.distributed.init_process_group()`.
    """
    _require_settings(loss, updates, cells, weights, batch_dim=batch_dim, check_every=check_every)
    shards_cells = "sharded" in (cells, weights)
    layers = _layers(model)
    _require_unprepared(layers)
    for name, layer in layers.items():
        _require_parted(name, layer)
        if weights == "sharded":
            _require_pulsed(name, layer)
    own = _own_parameters(model)
    digital = [each for name, each in model.named_parameters() if name not in own]
    process_group = ProcessGroup(
        model,
        {name: layer.tiles for name, layer in layers.items()},
        digital,
        group=_group(group, next(iter(layers.values())).tiles.device),
        loss=loss,
        batch_dim=batch_dim,
        check_every=check_every,
        shared=[
            name
            for name, layer in layers.items()
            if may_share(layer.tiles, "shared" if shards_cells else updates)
        ],
        shards_cells=shards_cells,
        shards_weights=weights == "sharded",
        reshards=reshard_after_forward,
        digests=lambda: _states(model, layers, process_group),
    )
    same = "make the model alike on every rank, after torch.manual_seed with one number"
    process_group.agreement.require_equal(
        {n: repr(a.config.to_dict()) for n, a in layers.items()}, "the configuration", same
    )
    process_group.agreement.require_equal(
        {n: _seeds(a) for n, a in layers.items()}, "the size or the seed", same
    )
    process_group.agreement.require_equal(
        states(model, layers, own), "the state", "write or load the same weights on every rank"
    )
    if updates == "auto" and not shards_cells and process_group.size > 1:
        times = choose_least_rows(process_group.updates.values(), process_group.group)
        if verbose and process_group.rank == 0:
            arrays = {name: layer.tiles for name, layer in layers.items()}
            print(table(times, arrays, process_group.size))  # noqa: T201 - asked for
    set_names((name, layer.tiles) for name, layer in layers.items())
    for layer in layers.values():
        layer.tiles.process_group = process_group
        process_group.replaced(layer.tiles)
        if isinstance(layer.held, FollowedWeights):
            layer.held.expect_copy(layer.weight)
    model.register_forward_pre_hook(process_group.open, with_kwargs=True)
    model.register_forward_hook(process_group.close, always_call=True)
    model._pulsora_process_group = process_group  # type: ignore[assignment]  # noqa: SLF001
    if loss == "sum" and process_group.size > 1:
        _multiply_gradients(digital, process_group.size)
    # DistributedDataParallel names parameters of the model itself in two ways.
    ignored = own | {f".{name}" for name in own if "." not in name}
    # torch has no public function for this.
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # noqa: SLF001
        model,
        ignored,  # type: ignore[no-untyped-call]
    )
    return model


def _require_settings(loss: str, updates: str, cells: str, weights: str, **counts: int) -> None:
    if loss not in {"mean", "sum"}:
        raise ValueError(f"loss = {loss!r}: write 'mean' or 'sum'")
    if updates not in {"auto", "all", "shared"}:
        raise ValueError(f"updates = {updates!r}: write 'auto', 'all' or 'shared'")
    if cells not in {"all", "sharded"}:
        raise ValueError(f"cells = {cells!r}: write 'all' or 'sharded'")
    if weights not in {"all", "sharded"}:
        raise ValueError(f"weights = {weights!r}: write 'all' or 'sharded'")
    for name, where in (("cells", cells), ("weights", weights)):
        if where == "sharded" and updates == "all":
            raise ValueError(
                f"updates = 'all' and {name} = 'sharded': a rank would make the pulses of tiles "
                f"whose {name} it does not store; leave updates = 'auto'"
            )
    for name, count in counts.items():
        require_at_least(name, count, 0)


@contextlib.contextmanager
def batch(model: nn.Module, counts: Sequence[int]) -> Iterator[None]:
    """Sets the rows of each rank for the forward passes inside, which then exchange none.

    Args:
        model: A prepared model, or a DistributedDataParallel around it.
        counts: Rows of each rank, the same on all.

    Raises:
        ValueError: for a model that was not prepared, or a number of counts that is not the number
            of ranks.
    """
    process_group = _group_of(model)
    if len(counts) != process_group.size:
        raise ValueError(
            f"counts = {list(counts)}: give the rows of each of {process_group.size} ranks"
        )
    for count in counts:
        require_at_least("counts", count, 0)
    before, process_group.given = process_group.given, tuple(int(count) for count in counts)
    try:
        yield
    finally:
        process_group.given = before


@contextlib.contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Has the weights of all layers on all ranks in the block, if `prepare` has sharded them.

    All ranks have to enter it, and leave it before the next step. In the block a rank may read
    weights, states and statistics, save the model, or evaluate alone. What is written
    (`set_weights`) has to be written on all ranks. The memory is that of the whole model.

    Args:
        model: A prepared model, or a DistributedDataParallel around it.

    Raises:
        ValueError: for a model that was not prepared.
        RuntimeError: if other ranks are in a forward pass or a step.
    """
    with _group_of(model).gathered():
        yield


def rows(model: nn.Module) -> int:
    """Returns the rows of the global batch in the last forward pass with gradients.

    Raises:
        ValueError: for a model that was not prepared.
        RuntimeError: before the first forward pass.
    """
    last = _group_of(model).last
    if last is None:
        raise RuntimeError("rows(model): there was no forward pass with gradients yet")
    return last.of


def check(model: nn.Module) -> None:
    """Compares the states of all ranks, parameters of torch included; all ranks have to call it.

    Of sharded weights, a rank has its own; then counters and numbers are compared.

    Raises:
        ValueError: for a model that was not prepared.
        RuntimeError: on all ranks, with the name of the first layer that differs.
    """
    inner = _inner(model)
    process_group = _group_of(model)
    layers = _layers(inner)
    process_group.agreement.require_equal(_states(inner, layers, process_group), "the state")


def _states(
    model: nn.Module, layers: Mapping[str, AnalogModule], process_group: ProcessGroup
) -> dict[str, str]:
    """Returns digests of what ranks have in common."""
    return states(
        model,
        layers,
        without_cells=process_group.shards_cells,
        without_tensors=process_group.weights.are_apart,
    )


def _inner(model: nn.Module) -> nn.Module:
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def _group_of(model: nn.Module) -> ProcessGroup:
    process_group = getattr(_inner(model), "_pulsora_process_group", None)
    if not isinstance(process_group, ProcessGroup):
        raise ValueError(  # noqa: TRY004 - it is a model
            "this model was not prepared; call pulsora.distributed.prepare(model) first"
        )
    return process_group


def _layers(model: nn.Module) -> dict[str, AnalogModule]:
    """Returns the analog layers by name, one for each array of tiles."""
    found: dict[int, tuple[str, AnalogModule]] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, AnalogModule):
            found.setdefault(id(layer.tiles), (name or type(layer).__name__, layer))
    if not found:
        raise ValueError(
            "model has no analog layers, so that DistributedDataParallel(model) is all it needs"
        )
    return dict(found.values())


def _require_unprepared(layers: Mapping[str, AnalogModule]) -> None:
    """Raises ValueError if a layer belongs to a process group already."""
    for name, layer in layers.items():
        if isinstance(layer.tiles.process_group, ProcessGroup):
            raise ValueError(  # noqa: TRY004 - the state is wrong, not the type
                f"the layer {name!r} was prepared before; prepare a model once"
            )


def _require_parted(name: str, layer: AnalogModule) -> None:
    """Raises ValueError if reads or updates of a layer need samples of other ranks."""
    config = layer.config
    for direction in ("forward", "backward"):
        periphery = getattr(config, direction)
        if not periphery.is_perfect and periphery.noise_management == "average_abs_max":
            raise ValueError(
                f"the layer {name!r} has {direction}.noise_management = 'average_abs_max', whose "
                "scale follows from all samples in order, so that ranks cannot read parts of a "
                "batch; choose 'abs_max'"
            )
    if config.facts.reuses_reads:
        raise ValueError(
            f"the layer {name!r} has projection = 'reuse', whose update reuses the reads of a "
            "whole batch, of which each rank has its own rows alone; choose 'analog' or 'exact'"
        )


def _require_pulsed(name: str, layer: AnalogModule) -> None:
    """Raises ValueError if the weights of a layer are a digital parameter, which no rank owns."""
    if layer.tiles.facts.digital_weight:
        raise ValueError(
            f"weights = 'sharded', but the layer {name!r} has a digital weight "
            f"({type(layer.config).__name__}), a parameter that all ranks hold; leave weights = "
            "'all', or give the layer a configuration whose cells are pulsed"
        )


def _group(group: dist.ProcessGroup | None, device: torch.device) -> dist.ProcessGroup | None:
    if dist.is_available() and dist.is_initialized():
        default = dist.distributed_c10d._get_default_group()  # noqa: SLF001 - nothing public
        return group or dist.new_group(timeout=timeout_of(default, device))
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        raise RuntimeError(
            f"WORLD_SIZE = {processes}, but torch.distributed does not run yet; call "
            "torch.distributed.init_process_group() before prepare"
        )
    return None


def _own_parameters(model: nn.Module) -> set[str]:
    """Returns the parameters whose gradients analog layers make from the rows of all ranks."""
    biases = {
        id(bias)
        for layer in model.modules()
        if isinstance(layer, AnalogModule | AnalogRNNBase)
        for bias in layer.added_biases()
    }
    return {
        name
        for name, each in model.named_parameters(remove_duplicate=False)
        if isinstance(each, AnalogParameter) or id(each) in biases
    }


def _multiply_gradients(parameters: Sequence[nn.Parameter], factor: int) -> None:
    """Turns DistributedDataParallel's average over ranks into a sum."""
    for each in parameters:
        if not (each.is_floating_point() or each.is_complex()):
            continue  # has no gradient
        trained = each.requires_grad
        each.requires_grad_(True)  # noqa: FBT003 - hooks stay, and may be needed later
        each.register_hook(lambda gradient: gradient * factor)  # type: ignore[no-untyped-call]
        each.requires_grad_(trained)
        each._pulsora_hooks = 1  # type: ignore[attr-defined]  # noqa: SLF001 - see graphs.hooks


def _seeds(layer: AnalogModule) -> str:
    tiles = layer.tiles
    return f"{tiles.shape} {tiles.groups} {[(tile.seed, tile.tile_id) for tile in tiles]}"
