"""State_dicts of analog layers with damaged, reordered or converted entries."""

from __future__ import annotations

import contextlib
import io
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

import pulsora as pl
from tests.fuzz import generators
from tests.fuzz.checks import require
from tests.fuzz.random_source import Draws

if TYPE_CHECKING:
    from pulsora.nn.base import AnalogModule

BASES = 12


@cache
def _base(number: int) -> tuple[pl.TileConfig, int, dict[str, torch.Tensor]]:
    """A configuration, a limit of sizes, and the state of a layer of both that has learnt."""
    draws = Draws("a layer to damage", number)
    config = generators.config(draws)
    if getattr(config, "rank", 0) not in {0, 1, 2}:
        config = config.replace(rank=2, rank_chunk=-1, rank_offset=0)
    limit = draws.pick((0, 3))
    try:
        layer = _layer(config, limit)
    except pl.ConfigError:  # a combination that no tile takes
        config = pl.SingleConfig()
        layer = _layer(config, limit)
    _learn(layer)
    return config, limit, layer.state_dict()


def _layer(config: pl.TileConfig, limit: int) -> AnalogModule:
    layer = pl.nn.AnalogLinear(
        5, 4, config=config, seed=3, threads=1, max_input_size=limit, max_output_size=limit
    )
    if layer.input_range is not None:
        layer.input_range.data.fill_(1.0)  # as calibration leaves it
    return layer


def _learn(layer: AnalogModule) -> torch.Tensor:
    """A step of training; what the layer gives before it, nothing with a damaged input range."""
    x = torch.linspace(-1.0, 1.0, 15).reshape(3, 5)
    try:
        y: torch.Tensor = layer(x)
    except pl.StateError as error:
        require("set layer.input_range to a positive number" in str(error), f"raised: {error}")
        return torch.zeros(0)
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.05)
    try:
        y.square().mean().backward()
        optimizer.step()
    except ValueError:
        # What a configuration asks of an update is not there, or a damaged bias makes gradients
        # infinite.
        optimizer.zero_grad()
    return y.detach()


def _same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return list(first) == list(second) and all(
        isinstance(second[name], torch.Tensor) and _equal(tensor, second[name])
        for name, tensor in first.items()
    )


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equal in every bit, also where they are not numbers."""
    if first.dtype != second.dtype or first.shape != second.shape or second.is_meta:
        return False
    return first.contiguous().numpy().tobytes() == second.detach().to_dense().numpy().tobytes()


def _of_tiles(state: dict[str, Any]) -> dict[str, Any]:
    return {name: state[name] for name in sorted(state) if name.startswith("tiles.")}


def run(draws: Draws) -> None:
    number = draws.integer(0, BASES - 1)
    config, limit, state = _base(number)
    layer = _layer(config, limit)
    _learn(layer)
    before = layer.state_dict()
    damaged: dict[str, Any] = dict(state)
    draws.note("layer", number, config, "limit", limit)
    for _ in range(draws.pick((1, 1, 2))):
        # What was damaged before may not be damaged in every way.
        with contextlib.suppress(RuntimeError, TypeError):
            _damage(draws, damaged, before)
    strict = draws.chance(0.8)
    draws.note("load, strict" if strict else "load")
    try:
        layer.load_state_dict(damaged, strict=strict)
    except RuntimeError as error:  # what torch raises, with the words of all
        require("Error(s) in loading" in str(error), f"torch raised by itself: {error}")
        loaded = _of_tiles(layer.state_dict())
        whole = _same(loaded, _of_tiles(before)) or _same(loaded, _of_tiles(damaged))
        require(whole, "the tiles were half loaded")
        return
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    again = _layer(config, limit)
    again.load_state_dict(torch.load(file, weights_only=True))
    require(_same(again.state_dict(), layer.state_dict()), "what was loaded again differs")
    # Without tiles in it, a state_dict leaves those of the layer alone.
    require(_equal(_learn(again), _learn(layer)), "what was loaded again reads differently")


def _damage(draws: Draws, state: dict[str, Any], other: dict[str, Any]) -> None:
    name = draws.pick(list(state))
    tensor = state[name]
    what = draws.integer(0, 11)
    draws.note("damage", what, "of", name)
    if what == 0 or not isinstance(tensor, torch.Tensor):
        del state[name]
    elif what == 1:
        state[draws.pick(("tiles.", "tiles.0_0.", "tiles.9_9.", "x.", "")) + name] = tensor
    elif what == 2:
        state[name] = tensor.to(
            draws.pick(
                (
                    torch.float64,
                    torch.bfloat16,
                    torch.float16,
                    torch.int64,
                    torch.bool,
                    torch.complex64,
                )
            )
        )
    elif what == 3:
        state[name] = draws.pick((
            tensor[:0], tensor.reshape(-1), torch.cat([tensor, tensor]), tensor[None],
        ))  # fmt: skip
    elif what == 4:
        state[name] = tensor.to("meta") if draws.chance(0.5) else tensor.float().to_sparse()
    elif what == 5:
        state[name] = other.get(name, tensor)
    elif what == 6:
        state[name] = state[draws.pick(list(state))]
    elif what == 7:
        state[name] = draws.pick((None, 3, "x", tensor.numpy(), tensor.tolist()))
    elif what == 8 and tensor.is_floating_point():
        number = draws.pick((float("nan"), float("inf"), draws.extreme()))
        state[name] = torch.full(tensor.shape, number).to(tensor.dtype)
    elif what == 9:
        items = list(state.items())
        draws.arrays.shuffle(items)  # type: ignore[arg-type]
        state.clear()
        state.update(items)
    elif tensor.numel():
        changed = tensor.clone().contiguous()
        flat = changed.reshape(-1).view(torch.uint8)
        flat[draws.integer(0, flat.numel() - 1)] ^= 1 << draws.integer(0, 7)
        state[name] = changed
