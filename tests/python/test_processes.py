"""Forked processes, signals, and what a caller may have set in its process."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pulsora as pl
from conftest import in_child, run

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SIZE = 256


def _tile(threads: int = 2) -> pl.Tile:
    return pl.Tile(_SIZE, _SIZE, pl.SingleConfig(), seed=3, threads=threads)


def _batch(samples: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(samples, _SIZE)).astype(np.float32)
    d = (0.1 * rng.normal(size=(samples, _SIZE))).astype(np.float32)
    return x, d


def _samples(seconds: float) -> int:
    """How many samples keep an update busy so long, on this machine as it is."""
    tile, batch = _tile(1), _batch(100)
    tile.update(*batch, 0.05)  # takes longer than those that follow
    start = time.perf_counter()
    tile.update(*batch, 0.05)
    return int(100 * seconds / (time.perf_counter() - start))


def _train(tile: pl.Tile) -> bytes:
    x, d = _batch(64)
    y = tile.forward(x)
    tile.update(x, d, 0.05)
    return y.tobytes() + tile.weights.tobytes()


def test_tiles_work_in_a_forked_process() -> None:
    used, fresh = _tile(), _tile()
    expected = _train(used)  # now there are threads
    again = _train(used.to("cpu"))

    def work() -> None:
        assert _train(fresh) == expected
        assert _train(used) == again
        assert _train(_tile()) == expected

    in_child(work)
    assert _train(used) == again  # and in the parent, as before


def test_a_tile_in_use_at_the_fork_says_so() -> None:
    busy, idle = _tile(), _tile()
    x, d = _batch(_samples(4.0))
    before = busy.state()
    thread = threading.Thread(target=busy.update, args=(x, d, 0.05))
    thread.start()
    time.sleep(0.1)
    assert thread.is_alive()

    def work() -> None:
        with pytest.raises(RuntimeError, match="another thread was using this tile"):
            _ = busy.weights
        _train(pl.Tile.from_state(before))
        _train(idle)

    in_child(work)
    thread.join()
    assert busy.counters["update_samples"] == len(x)


def test_ctrl_c_ends_a_long_update_between_two_samples() -> None:
    tile, other = _tile(1), _tile(1)
    samples = max(4_000, _samples(1.5))  # several parts
    x, d = _batch(samples)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            tile.update(x, d, 0.05)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    done = tile.counters["update_samples"]
    assert 0 < done < samples
    assert tile.counters["mini_batches"] == 0
    other.update(x[:done], d[:done], 0.05, end_of_batch=False)
    assert tile.weights.tobytes() == other.weights.tobytes()
    for each in (tile, other):
        each.update(x[done : done + 10], d[done : done + 10], 0.05)
    assert tile.weights.tobytes() == other.weights.tobytes()


def test_a_signal_handler_may_use_the_tile_that_is_being_updated() -> None:
    tile = _tile(1)
    samples = max(3_000, _samples(0.5))
    x, d = _batch(samples)
    saved: list[pl.state.State] = []
    previous = signal.signal(signal.SIGALRM, lambda *_: saved.append(tile.state()))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        tile.update(x, d, 0.05)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    (state,) = saved
    done = int(state.values["update_samples"])
    assert 0 < done < samples
    going_on = pl.Tile.from_state(state)
    going_on.update(x[done:], d[done:], 0.05)
    assert going_on.weights.tobytes() == tile.weights.tobytes()


def test_flushing_subnormal_numbers_changes_no_bit() -> None:
    torch = pytest.importorskip("torch")
    x = np.full((8, _SIZE), 1e-39, np.float32)
    d = np.full((8, _SIZE), 1e-3, np.float32)
    config = pl.SingleConfig(
        device=pl.devices.ConstantStep(w_max_dtod=0.0),
        forward=pl.IOParameters(is_perfect=True),
        update=pl.UpdateParameters(pulse_type="none"),
    )

    def run(threads: int) -> bytes:
        tile = pl.Tile(_SIZE, _SIZE, config, seed=3, threads=threads)
        tile.weights = np.full((_SIZE, _SIZE), 0.25, np.float32)
        y = tile.forward(x)
        assert np.all(y != 0)
        tile.update(x, d, 1.0)
        return y.tobytes() + tile.weights.tobytes()

    expected = run(1)
    assert torch.set_flush_denormal(True)
    try:
        assert [run(1), run(2)] == [expected, expected]
    finally:
        torch.set_flush_denormal(False)


def test_small_operations_start_no_thread() -> None:
    """Waking a thread takes longer than small work; a large operation shows that they are seen."""
    code = """
        import os
        import numpy as np
        import pulsora as pl

        def grown(size, samples):
            before = len(os.listdir("/proc/self/task"))
            tile = pl.Tile(size, size, pl.SingleConfig(), threads=2)
            x = np.ones((samples, size), np.float32)
            tile.forward(x), tile.backward(x), tile.update(x, 0.1 * x, 0.05)
            return len(os.listdir("/proc/self/task")) - before

        print(grown(64, 4), grown(256, 64))
    """
    path = os.pathsep.join(sys.path)
    assert run(sys.executable, "-c", textwrap.dedent(code), env={"PYTHONPATH": path}) == "0 1\n"


def test_more_threads_than_the_limit_are_refused() -> None:
    with pytest.raises(pl.ConfigError, match="threads is 2000; it must be >= 1 and <= "):
        _tile(2000)
    tile = _tile()
    with pytest.raises(pl.ConfigError, match="threads is 2000"):
        tile.threads = 2000
    assert tile.threads == 2
