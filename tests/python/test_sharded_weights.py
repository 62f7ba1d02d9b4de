"""Several processes, each of which stores a part of the weights, train with the bits of one."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
from torch import nn

import distributed_cases as cases
import pulsora as pl
import sharded_weights_runs as sharded
from conftest import DEVICES
from distributed_models import World, mlp, outcome, processes, train
from pulsora import distributed
from pulsora.distributed.process_group import ProcessGroup
from pulsora.nn import AnalogLinear

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = [name for name in (*cases.EXACT, *cases.EXACT_OF_TWO) if name != "penalised"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded_weights")


@pytest.fixture(scope="module")
def pair(folder: Path) -> list[dict[str, Any]]:
    return processes(sharded.__file__, 2, folder)


@cache
def by_one(name: str, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """The result of a single process, without `prepare`."""
    run = (cases.EXACT | cases.EXACT_OF_TWO | sharded.EXACT)[name]
    return run(World(folder=folder, device=device))


@pytest.mark.parametrize("reshards", [True, False])
@pytest.mark.parametrize("name", [*NAMES, *sharded.EXACT])
def test_property_37_sharded_weights_have_the_bits_of_one_process(
    name: str, reshards: bool, pair: list[dict[str, Any]], folder: Path
) -> None:
    wanted = by_one(name, folder)
    assert len(wanted) > 0
    assert [found[str(reshards)][name] for found in pair] == [wanted, wanted]


@pytest.mark.parametrize("run", cases.SIMPLE)
def test_training_steps_with_sharded_weights_have_the_bits_of_one_process(
    run: Callable[[World], dict[str, Any]], pair: list[dict[str, Any]], folder: Path
) -> None:
    wanted = by_one(run.__name__, folder)
    assert [found["training steps"][run.__name__] for found in pair] == [wanted, wanted]


def test_digital_layers_are_averaged_beside_sharded_weights(pair: list[dict[str, Any]]) -> None:
    whole, shared = pair[0]["digital"]
    assert whole == shared
    assert pair[0]["digital"] == pair[1]["digital"]


@pytest.mark.parametrize("kind", ["single", "lrtt"])
def test_each_rank_stores_the_weights_of_its_layers_alone(
    kind: str, pair: list[dict[str, Any]]
) -> None:
    one, other = (found["memory"][kind] for found in pair)
    whole = one["whole"]
    assert min(whole) > 4 * 12 * 12
    for when in ("prepared", "backward", "stepped", "after"):
        both = [one[when], other[when]]
        assert [max(sizes) for sizes in zip(*both, strict=True)] == whole
        assert [min(sizes) for sizes in zip(*both, strict=True)] == [0] * 4
        assert [sum(sizes) for sizes in both] == [sum(whole) / 2] * 2
    for found in (one, other):
        borrowed = [
            sum(mine) - sum(found["prepared"]) for mine in found["reads"]
        ]  # the last layer stays for its backward read
        assert set(borrowed[:-2]) == {0}
        assert max(borrowed) <= max(whole)
        assert min(found["gathered"]) >= 4 * 12 * 12


def test_the_memory_of_the_process_is_that_of_its_weights(pair: list[dict[str, Any]]) -> None:
    for everything, shared in (found["allocated"] for found in pair):
        assert everything > 15 << 20
        assert everything - shared > 6 << 20  # of 8 MiB, by the kernel's count of pages


def test_weights_are_gathered_for_each_read_or_kept_until_the_backward_read(
    pair: list[dict[str, Any]],
) -> None:
    """The last of four layers is read backward at once, and the first one not at all."""
    for found in pair:
        assert found["messages True"][1:] == [4 + 2] * 2
        assert found["messages False"][1:] == [4] * 2


def test_what_two_processes_saved_goes_on_in_one(pair: list[dict[str, Any]], folder: Path) -> None:
    assert "loaded" in pair[0]["True"]
    wanted = outcome(train(World(), mlp(), range(6)))
    model = mlp()
    model.load_state_dict(torch.load(folder / "gone_on.pt", weights_only=True))
    assert outcome(train(World(), model, range(4, 6))) == wanted
    model = mlp()
    pl.load(model, folder / "parts")
    assert outcome(train(World(), model, range(4, 6))) == wanted


GATHERED = (
    r"StateError: layer '0' \(AnalogLinear .* in a block 'with pulsora\.distributed\.gathered"
)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *[(name, GATHERED) for name in ("weight", "get", "set", "state_dict", "copy")],
        *[(name, GATHERED) for name in ("statistics", "io", "move")],
        ("tile", "StateError: this process does not store the weights of this tile"),
        ("explain", "StateError: this process does not store the weights of this tile"),
        ("alone", "RuntimeError: .* outside a forward pass of its model.* on all ranks, or read"),
        ("block", r"RuntimeError: a step .* in a block of .*; leave the block before the step"),
        ("nothing changed", "nothing was raised"),
        ("trained", "True"),
        (
            "evaluation",
            r"RuntimeError: .* ranks \[0\] are in a forward pass without gradients, and ranks \[1",
        ),
    ],
)
def test_what_needs_all_weights_asks_for_a_block(
    name: str, message: str, pair: list[dict[str, Any]]
) -> None:
    for found in pair:
        assert re.match(message, found["refusals"][name]), found["refusals"][name]


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_sharded_weights_on_gpus_have_the_bits_of_one(tmp_path: Path) -> None:
    """Two processes with a GPU each (NCCL) if there are two GPUs, or else on one GPU (gloo)."""
    pair = processes(sharded.__file__, 2, tmp_path, "cuda")
    wrong = []
    for name in [*NAMES, *sharded.EXACT]:
        wanted = by_one(name, tmp_path, "cuda")
        for reshards in ("True", "False"):
            wrong += [(name, reshards) for found in pair if found[reshards][name] != wanted]
    assert wrong == []
    for found in pair:
        for kind in ("single", "lrtt"):
            sizes = found["memory"][kind]
            assert 2 * sum(sizes["stepped"]) == sum(sizes["whole"])


@pytest.mark.nightly
def test_four_processes_have_the_bits_of_one(tmp_path: Path) -> None:
    four = processes(sharded.__file__, 4, tmp_path)
    for name in [*cases.EXACT, *sharded.EXACT]:
        if name != "penalised":
            assert [found["True"][name] for found in four] == [by_one(name, tmp_path)] * 4


def test_bad_settings_are_refused_before_anything_changes() -> None:
    model = nn.Sequential(AnalogLinear(3, 2))
    with pytest.raises(ValueError, match="weights = 'some': write 'all' or 'sharded'"):
        distributed.prepare(model, weights="some")
    with pytest.raises(ValueError, match="updates = 'all' and weights = 'sharded': a rank would"):
        distributed.prepare(model, updates="all", weights="sharded")
    for config in (pl.MixedPrecisionConfig(), pl.InferenceConfig()):
        digital = nn.Sequential(model, AnalogLinear(2, 2, config=config))
        name = type(config).__name__
        with pytest.raises(ValueError, match=rf"the layer '1' has a digital weight \({name}\)"):
            distributed.prepare(digital, weights="sharded")
    assert not hasattr(model, "_pulsora_process_group")
    with pytest.raises(ValueError, match="was not prepared"), distributed.gathered(model):
        pass


def test_one_process_has_all_weights_and_may_ask_for_them() -> None:
    model = distributed.prepare(mlp(), weights="sharded")
    assert outcome(model) == outcome(mlp())
    before = sharded.stored(model)
    with distributed.gathered(model):
        assert sharded.stored(model) == before == sharded.stored(mlp())
    model[0].weight  # noqa: B018 - raises nothing


def test_steps_with_sharded_weights_are_not_recorded() -> None:
    model = distributed.prepare(mlp())
    group = model._pulsora_process_group
    assert isinstance(group, ProcessGroup)
    group.weights._updates = {1: mock.Mock()}
    with mock.patch.object(group, "_by_nccl", new=True):
        because = group.not_recorded_because
    assert because is not None
    assert re.match("weights = 'sharded' moves weights at every read; leave", because)
