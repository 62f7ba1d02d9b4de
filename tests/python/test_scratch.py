"""Scratch memory: what it takes, its limit, and that results do not depend on it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import pulsora as pl
from conftest import CONFIGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

MIB = 1 << 20
KIB = 1 << 10


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    before = pl.scratch_limit()
    yield
    pl.scratch_limit(before)


def batch(rows: int, d_size: int, x_size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (rows, x_size)).astype(np.float32)
    return x, rng.normal(0, 0.3, (rows, d_size)).astype(np.float32)


def train(tile: pl.Tile, rows: int, steps: int = 2) -> list[Any]:
    """Results of some mini-batches, and the state afterwards."""
    x, d = batch(rows, tile.d_size, tile.x_size)
    results: list[Any] = []
    for _ in range(steps):
        results += [tile.forward(x).tobytes(), tile.backward(d).tobytes()]
        tile.update(x, d, 0.05)
    return [*results, tile.forward(x, evaluation=True).tobytes(), pl.state.dumps(tile.state())]


def peak_of(call: Callable[[], object]) -> int:
    before = pl.scratch_memory(reset_peak=True)["in_use"]
    call()
    return pl.scratch_memory()["peak"] - before


def test_nothing_is_in_use_between_operations() -> None:
    tile = pl.Tile(20, 30, pl.SingleConfig(), seed=1)
    assert peak_of(lambda: train(tile, 100)) > 100 * 30 * 4
    memory = pl.scratch_memory()
    assert memory["in_use"] == 0
    assert memory["held"] >= 100 * 30 * 4
    assert memory["limit"] == pl.scratch_limit() == 256 * MIB
    assert set(memory) == {"in_use", "held", "peak", "limit"}


@pytest.mark.parametrize("name", ["single", "lrtt"])
def test_the_peak_does_not_grow_with_depth(name: str) -> None:
    def peak(depth: int) -> int:
        layers = [pl.nn.AnalogLinear(48, 48, config=CONFIGS[name](), seed=i) for i in range(depth)]
        model = torch.nn.Sequential(*layers)
        optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.01)
        x = torch.rand(256, 48)

        def step() -> None:
            model(x).square().mean().backward()
            optimizer.step()

        step()
        return peak_of(step)

    assert peak(1) == peak(6) > 0


def test_tiles_keep_no_scratch_memory() -> None:
    program = """
import numpy as np, pulsora as pl
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (2048, 256)).astype(np.float32)
tiles = []
def more(count):
    for _ in range(count):
        tile = pl.Tile(256, 256, CONFIG, seed=len(tiles))
        tiles.append(tile)
        tile.forward(x), tile.backward(x), tile.update(x, x, 0.001)
more(2)
begin = resident()
more(10)
print(resident() - begin)
"""
    for config, most in (("pl.SingleConfig()", 2.0), ("pl.LRTTConfig(rank=8)", 3.0)):
        run = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-c", program.replace("CONFIG", config)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert float(run.stdout) / 10 < most, config  # MiB a tile; x has 2 MiB


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_bits_do_not_depend_on_the_limit(name: str) -> None:
    rows = 300

    def made() -> pl.Tile:
        return pl.Tile(6, 10, CONFIGS[name](), seed=3)

    expected = train(made(), rows)
    for limit in (10 * KIB, 20 * KIB, 64 * KIB, MIB):
        pl.scratch_limit(limit)
        assert train(made(), rows) == expected, limit


@pytest.mark.parametrize(
    "io",
    [
        {"weight_bits": 16},
        {"bound_management": "iterative", "out_bound": 0.5},
        {"w_noise": 0.05, "w_noise_type": "pcm_read"},
        {"ir_drop": 1.0, "mv_type": "pos_neg_separate"},
        {"inp_sto_round": True, "out_sto_round": True},
        {"mv_type": "bit_serial", "bound_management": "none"},
    ],
    ids=str,
)
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_rows_keep_to_the_limit(io: dict[str, Any], threads: int) -> None:
    config = pl.SingleConfig(forward=pl.IOParameters(**io), backward=pl.IOParameters(**io))

    def run() -> list[Any]:
        return train(pl.Tile(40, 50, config, seed=2, threads=threads), 1000)

    expected = run()
    for limit in (128 * KIB, 300 * KIB):
        pl.scratch_limit(limit)
        results: list[Any] = []
        assert peak_of(lambda into=results: into.extend(run())) <= limit
        assert results == expected


def test_what_needs_the_whole_batch_takes_what_it_needs() -> None:
    io = pl.IOParameters(noise_management="average_abs_max")
    config = pl.SingleConfig(forward=io, backward=io)
    expected = train(pl.Tile(20, 30, config, seed=2), 1000)
    pl.scratch_limit(10 * KIB)
    assert train(pl.Tile(20, 30, config, seed=2), 1000) == expected


def test_layers_of_several_tiles_keep_to_the_limit() -> None:
    def run() -> list[bytes]:
        layer = pl.nn.AnalogLinear(
            90, 70, config=pl.SingleConfig(), max_input_size=40, max_output_size=30, seed=4
        )
        optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.01)
        x = torch.from_numpy(batch(800, 70, 90)[0]).requires_grad_()
        layer(x).square().mean().backward()
        optimizer.step()
        assert x.grad is not None
        return [x.grad.numpy().tobytes(), layer.get_weights()[0].numpy().tobytes()]

    expected = run()
    pl.scratch_limit(100 * KIB)
    results: list[bytes] = []
    assert peak_of(lambda: results.extend(run())) <= 100 * KIB
    assert results == expected


def test_threads_have_memory_of_their_own() -> None:
    expected = [train(pl.Tile(20, 30, pl.SingleConfig(), seed=i), 200, 4) for i in range(4)]
    found: list[Any] = [None] * 4

    def work(number: int) -> None:
        found[number] = train(pl.Tile(20, 30, pl.SingleConfig(), seed=number), 200, 4)

    held = pl.scratch_memory()["held"]
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
    assert pl.scratch_memory()["in_use"] == 0
    deadline = time.monotonic() + 10
    while pl.scratch_memory()["held"] != held:  # that of a thread goes when the thread has ended
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_forked_process_goes_on() -> None:
    tile = pl.Tile(20, 30, pl.SingleConfig(), seed=6)
    train(tile, 200)
    twin = pl.Tile.from_state(tile.state())
    expected = train(twin, 300)
    child = os.fork()
    if child == 0:
        os._exit(0 if train(tile, 300) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert train(tile, 300) == expected


def test_a_limit_too_small_for_a_row_is_refused_and_nothing_changes() -> None:
    tile = pl.Tile(200, 300, pl.SingleConfig(), seed=7)
    x, d = batch(10, 200, 300)
    before = pl.state.dumps(tile.state())
    pl.scratch_limit(500)
    for call in (
        lambda: tile.forward(x),
        lambda: tile.backward(d),
        lambda: tile.update(x, d, 0.1),
    ):
        with pytest.raises(pl.OutOfMemoryError, match=r"limit is 500 bytes; raise it"):
            call()
    assert pl.state.dumps(tile.state()) == before
    assert pl.scratch_memory()["in_use"] == 0
    pl.scratch_limit(MIB)
    tile.forward(x)


@pytest.mark.parametrize("bytes_", [0, -5, 1.5, "1 GB", True])
def test_bad_limits(bytes_: object) -> None:
    with pytest.raises((pl.ConfigError, pl.InputError), match="bytes"):
        pl.scratch_limit(bytes_)
    assert pl.scratch_limit() == 256 * MIB


def test_bad_devices() -> None:
    with pytest.raises(pl.ConfigError, match="device is 'gpu'"):
        pl.scratch_memory("gpu")


def test_the_environment_variable() -> None:
    program = "import pulsora as pl; print(pl.scratch_limit())"

    def run(value: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PULSORA_SCRATCH_LIMIT": value},
        )

    assert run("1000000").stdout.split() == ["1000000"]
    assert run("").stdout.split() == [str(256 * MIB)]
    for bad in ("1 GB", "0", "-1", "99999999999999999999"):
        assert f"PULSORA_SCRATCH_LIMIT is '{bad}'; give a number of bytes" in run(bad).stderr
