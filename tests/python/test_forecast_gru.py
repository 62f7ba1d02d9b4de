"""The recurrent forecaster: features and moves against NumPy, its file, trainings with it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from conftest import ROOT
from forecast_training import STEPS, batches, bits, make
from pulsora import state
from pulsora.forecast import Ensemble, GRUForecaster, rollout
from pulsora.forecast.gru.features import basis, features
from pulsora.forecast.gru.forecaster import believed
from pulsora.forecast.history import BlockMeans, History
from pulsora.forecast.schedule import rates_ahead

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TRAIN = ROOT / "scripts" / "train_forecaster.py"
RATES = [0.9, 0.5, 0.2, 0.1]


def history(points: np.ndarray) -> History:
    """Block means at these points, split over two weights, with falling losses."""
    blocks = BlockMeans(samples=1, kept=33)
    for number, point in enumerate(points.astype(np.float32)):
        blocks.add([torch.from_numpy(point[:6].reshape(2, 3)), torch.from_numpy(point[6:])], number)
    losses = [1.0 / (1.0 + number) for number in range(len(points))]
    return History(blocks, losses, 25, lambda steps: [1.0] * len(steps))


def walk(count: int = 25, size: int = 40, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.cumsum(random.standard_normal((count, size)), 0) + 3.0 * np.arange(count)[:, None]


def test_directions_are_those_of_a_singular_value_decomposition() -> None:
    points = walk()
    past = points[:-1] - points[-1]
    left, values, right = np.linalg.svd(past, full_matrices=False)
    found = basis(past @ past.T)
    np.testing.assert_allclose(found.scales, values[:16], rtol=1e-8)
    for row in range(16):
        sign = np.sign(left[:, row] @ found.vectors[:, row])
        np.testing.assert_allclose(found.vectors[:, row], sign * left[:, row], atol=1e-7)
        np.testing.assert_allclose(
            found.path()[row], np.append(past @ (sign * right[row]), 0.0), atol=1e-6
        )
        size = np.abs(found.vectors[:, row])
        assert found.vectors[np.argmax(size >= (1 - 2**-10) * size.max()), row] > 0.0
    move = np.arange(16.0)
    back = past.T @ found.combination(move)  # which is Q times the move
    signs = np.sign((left.T[:16] * found.vectors.T).sum(1))
    np.testing.assert_allclose(back, (signs * move) @ right[:16], atol=1e-6)


def test_directions_of_what_hardly_moves() -> None:
    assert len(basis(np.zeros((16, 16))).scales) == 0
    line = np.outer(np.arange(20.0), np.ones(5))
    assert len(basis(line @ line.T).scales) == 1


@pytest.mark.parametrize("count", [17, 25, 33])
def test_features_are_as_defined(count: int) -> None:
    """Row by row, in loops."""
    past = walk(count)
    past = past - past[-1]
    directions = basis(past[:-1] @ past[:-1].T)
    losses = [2.5 / (1.0 + number) ** 0.5 for number in range(count)]
    rows, units = features(directions, losses, RATES)
    assert rows.shape == (16, 64)
    padded = [losses[0]] * (32 - count) + losses[-32:]
    late, early = np.mean(padded[16:]), np.mean(padded[:16])
    of_losses = [padded[-1], np.mean(padded), np.std(padded, ddof=1), min(padded), max(padded)]
    of_losses += [late - early, (late - early) / late, np.log10(padded[-1])]
    m = count - 1
    for r, path in enumerate(directions.path()):
        unit = np.sqrt(np.mean(np.diff(path) ** 2))
        z = list(np.diff(path) / unit)
        far = lambda w: (path[-1] - path[max(m - w, 0)]) / unit  # noqa: B023, E731
        want = [0.0, *([0.0] * (32 - m)), *z, *np.clip(of_losses, -3, 3)]
        want += [far(w) / w**0.5 for w in (4, 8, 16, 32)]
        want += [r / 16, np.log10(directions.scales[r] / directions.scales[0])]
        want += [np.log10(unit / units[0])]
        want += [sum(a * b for a, b in zip(z[gap:], z, strict=False)) / m for gap in (1, 2)]
        want += [np.mean([far(w) for w in range(1, 17)]) / 4]
        want += [np.mean([far(w) for w in range(17, 33)]) / 4]
        want += [*RATES, m / 32, *[0.0] * 7]
        np.testing.assert_allclose(rows[r], np.clip(want, -10, 10), atol=1e-5)
        assert units[r] == pytest.approx(unit)


def test_a_move_is_that_of_the_ensemble_along_the_directions() -> None:
    """Against NumPy, with the directions of a singular value decomposition formed."""
    points = walk(30).astype(np.float32)
    given = history(points)
    forecaster = GRUForecaster(alpha=1.5)
    found = np.concatenate([part.numpy().ravel() for part in forecaster(given, 130)])
    past = points[:-1].astype(np.float64) - points[-1]
    directions = basis(past @ past.T)
    rows, units = features(directions, given.losses, [1.0] * 4)
    paths = rollout(Ensemble.trained(), rows, 5).mean * units[:, None]
    q = past.T @ directions.vectors / directions.scales
    np.testing.assert_allclose(found, 1.5 * q @ believed(paths), rtol=1e-3, atol=1e-3)


def test_members_that_disagree_shorten_a_move() -> None:
    one = np.array([[1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_allclose(believed(np.stack([one, one])), [4.0])  # 3 blocks, and 4 / 3 of that
    doubted = np.array([[1.0, 2.0, 3.0, -4.0]])
    np.testing.assert_allclose(believed(np.stack([one, doubted])), [3.0])
    np.testing.assert_allclose(believed(np.stack([one, -one])), [0.0])


def test_a_steady_drift_goes_on() -> None:
    """The trained ensemble is told nothing of these weights."""
    random = np.random.default_rng(1)
    way = random.standard_normal(40)
    points = np.arange(33.0)[:, None] * way + 0.3 * random.standard_normal((33, 40))
    for steps in (50, 125):
        move = np.concatenate(
            [p.numpy().ravel() for p in GRUForecaster(alpha=1.0)(history(points), steps)]
        )
        blocks = steps / 25
        assert 0.1 * blocks < move @ way / (way @ way) < 1.2 * blocks
        assert move @ way > 0.95 * np.linalg.norm(move) * np.linalg.norm(way)


def test_weights_that_stand_still_or_burst() -> None:
    still = np.ones((20, 9))
    assert all(not bool(part.any()) for part in GRUForecaster()(history(still), 100))
    still[-1, 2] = np.inf
    with pytest.raises(ValueError, match="weights are not finite: training diverged"):
        GRUForecaster()(history(still), 100)


@pytest.mark.parametrize("kind", ["cosine", "chain", "one cycle", "none"])
def test_rates_ahead_are_those_that_come(kind: str) -> None:
    def made() -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3, momentum=0.9)
        rates = torch.optim.lr_scheduler
        if kind == "cosine":
            return optimizer, rates.CosineAnnealingLR(optimizer, 100)
        if kind == "one cycle":
            return optimizer, rates.OneCycleLR(optimizer, 1.0, total_steps=101)
        parts = [
            rates.LinearLR(optimizer, 0.1, total_iters=20),
            rates.ExponentialLR(optimizer, 0.9),
        ]
        return optimizer, rates.SequentialLR(optimizer, parts, [20])

    optimizer, scheduler = made()

    def forward(steps: int) -> float:
        for _ in range(steps):
            optimizer.step()
            scheduler.step()
        return float(optimizer.param_groups[0]["lr"])

    if kind == "none":
        assert rates_ahead(None, [1, 5]) == [1.0, 1.0]
        return
    now = forward(10)
    found = rates_ahead(scheduler, [1, 5, 5, 90])
    assert float(optimizer.param_groups[0]["lr"]) == now
    assert scheduler.last_epoch == 10
    came: Sequence[float] = [forward(1), forward(4), forward(0), forward(85)]
    np.testing.assert_allclose(np.array(found) * now, came, rtol=1e-6, atol=1e-12)


def test_the_trained_ensemble_is_a_plain_file() -> None:
    made = Ensemble.trained()
    assert made.encoder.shape[:2] == (5, 64)
    assert made.recurrent.shape == (5, 64, 192)
    assert repr(GRUForecaster()).startswith("gru(alpha=2, ensemble=")


def test_an_ensemble_is_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "ensemble.safetensors"
    Ensemble.trained().save(path)
    theirs = safetensors.numpy.load_file(path)
    ours = Ensemble.load(path).arrays()
    assert theirs.keys() == ours.keys() == Ensemble.trained().arrays().keys()
    for name, array in Ensemble.trained().arrays().items():
        np.testing.assert_array_equal(theirs[name], array)
        np.testing.assert_array_equal(ours[name], array)
    # And with the extra bias of units that reset late.
    late = Ensemble(**ours, candidate_bias=np.ones((5, 64), np.float32))
    late.save(path)
    assert Ensemble.load(path).arrays()["candidate_bias"].all()


def test_files_that_hold_no_ensemble_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ensemble.safetensors"
    good = Ensemble.trained().arrays()

    def refused(message: str, **changes: np.ndarray | None) -> None:
        arrays = {k: v for k, v in (good | changes).items() if v is not None}
        state.save(state.State(arrays, {}).signed(), path)
        with pytest.raises(ValueError, match=message):
            Ensemble.load(path)

    refused(
        r"lacks the tensors \['bias'\], and has \['other'\]",
        bias=None,
        other=np.zeros(2, np.float32),
    )
    refused(
        r"heads has shape \[5, 64, 3\]; .* must be \[5, 64, 2\]",
        heads=np.zeros((5, 64, 3), np.float32),
    )
    refused(
        r"encoder has shape \[2\]; it must have three dimensions", encoder=np.zeros(2, np.float32)
    )
    refused("bias has type float16; it must be float32", bias=np.zeros((5, 192), np.float16))
    refused("bias has values that are not finite", bias=np.full((5, 192), np.nan, np.float32))
    with pytest.raises(ValueError, match="ensemble takes rows of 3 features; histories give 64"):
        GRUForecaster(Ensemble(**(good | {"encoder": np.zeros((5, 3, 64), np.float32)})))
    Ensemble.trained().save(path)
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"complete safetensors file|checksum"):
            Ensemble.load(path)


@pytest.mark.nightly
@pytest.mark.skipif(not TRAIN.is_file(), reason="an installed package has no scripts")
def test_one_seed_trains_one_ensemble(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        path = tmp_path / name
        sizes = ["--trainings", "2", "--iterations", "5", "--hidden", "8"]
        command = [sys.executable, TRAIN, "--out", path, *sizes]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        assert "R2 of paths" in done.stdout
        made.append(path.read_bytes())
    assert made[0] == made[1]
    assert GRUForecaster(Ensemble.load(tmp_path / "a")).name == "gru"


def test_property_38_a_training_with_it_goes_on_to_the_bit(tmp_path: Path) -> None:
    whole = make(forecaster="gru", guard=False)
    torch.manual_seed(7)
    report = whole.train(batches, progress=False)
    assert report.forecaster == "gru"
    assert len(report.jumps) == 10
    assert any(jump.share > 0.0 for jump in report.jumps)
    assert "forecaster='linear'" in str(report)
    for at in (29, 61):
        first = make(forecaster="gru", guard=False)
        torch.manual_seed(7)
        first.train(batches, passes=at, progress=False)
        first.save(tmp_path / "training.pt")
        torch.manual_seed(12345)
        second = make(forecaster=GRUForecaster(Ensemble.trained()), guard=False)
        second.load(tmp_path / "training.pt")
        assert second.train(batches, progress=False) == report
        assert bits(second.model) == bits(whole.model)
    with pytest.raises(ValueError, match=r"trainer with other settings .*ensemble="):
        make(forecaster=GRUForecaster(alpha=1.0)).load(tmp_path / "training.pt")


def test_settings_that_do_not_suit_it_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"warm_up = 3 and full = 8 make 11 blocks .* 'gru' needs 17"
    ):
        make(forecaster="gru", warm_up=3)
    with pytest.raises(ValueError, match=r"full must be at least 6"):
        make(forecaster="gru", full=5)
    with pytest.raises(ValueError, match=r"alpha = 1 is for forecasters by name; gru\(alpha=2"):
        make(forecaster=GRUForecaster(), alpha=1.0)
    assert make(forecaster="gru", alpha=0.5, steps=10 * STEPS).plan.block == 12
