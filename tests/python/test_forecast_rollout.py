"""Rollouts by NumPy: dropout, layer normalisation, predicted states, 16 bits; parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
import torch

import pulsora as pl
from pulsora.forecast import Ensemble, rollout, rollout_on
from reference_random import Purpose, draw, make_key, uniform

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

E, F, X, H, W = 3, 6, 10, 17, 5


def ensemble(
    *, after: bool = False, normalised: bool = False, width: int = W, seed: int = 1
) -> Ensemble:
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 1.0) -> NDArray[np.float32]:
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    return Ensemble(
        encoder=normal(E, F, X, scale=F**-0.5),
        encoder_bias=normal(E, X, scale=0.1),
        input=normal(E, X, 3 * H, scale=X**-0.5),
        recurrent=normal(E, H, 3 * H, scale=H**-0.5),
        bias=normal(E, 3 * H, scale=0.1),
        heads=normal(E, H, 2, scale=H**-0.5),
        log_variance_bias=normal(E),
        candidate_bias=normal(E, H, scale=0.2) if after else None,
        state_gain=1.0 + normal(E, H, scale=0.2) if normalised else None,
        state_shift=normal(E, H, scale=0.2) if normalised else None,
        projection=normal(E, H, width, scale=H**-0.5) if width else None,
        projection_bias=normal(E, width) if width else None,
    )


def masks(seed: int, member: int, sample: int, rows: int, units: int, share: float) -> Floats:
    """Factors [rows, units]: a Philox block serves four adjacent units."""
    key = make_key(seed, member, 0)
    blocks = draw(key, Purpose.DROPOUT, np.arange(-(-units // 4)), np.arange(rows)[:, None], sample)
    words = blocks.reshape(rows, -1)[:, :units]
    return np.where(uniform(words) < np.float32(share), 0.0, 1.0 / (1.0 - np.float64(share)))


class Expected(NamedTuple):
    mean: Floats
    log_variance: Floats
    state: Floats
    predicted: Floats


def logistic(a: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-a))


def unit(w: dict[str, Floats], x: Floats, h: Floats, rounded: Callable[[Floats], Floats]) -> Floats:
    """A step of a gated recurrent unit; products take rounded numbers."""
    a = x @ w["input"] + w["bias"]
    u = w["recurrent"]
    g = rounded(h) @ u
    z = logistic(a[:, :H] + g[:, :H])
    r = logistic(a[:, H : 2 * H] + g[:, H : 2 * H])
    if "candidate_bias" in w:
        n = np.tanh(a[:, 2 * H :] + r * (g[:, 2 * H :] + w["candidate_bias"]))
    else:
        n = np.tanh(a[:, 2 * H :] + rounded(r * h) @ u[:, 2 * H :])
    return (1.0 - z) * h + z * n


def normalised_state(w: dict[str, Floats], h: Floats) -> Floats:
    if "state_gain" not in w:
        return h
    y = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)
    return y * w["state_gain"] + w["state_shift"]


def reference(
    e: Ensemble, f: Floats, steps: int, *, feedback: bool = True, share: float = 0.0,
    samples: int = 1, seed: int = 0, half: bool = False,
) -> Expected:  # fmt: skip
    """The definitions of docs/explain/forecasts.md, in double precision."""

    def rounded(a: Floats) -> Floats:
        return np.asarray(a).astype(np.float32).astype(np.float16).astype(np.float64) if half else a

    rows = len(f)
    w = {name: rounded(np.asarray(a, np.float64)) for name, a in e.arrays().items()}
    out: list[list[Floats]] = [[], [], [], []]
    for m in range(len(e.encoder)):
        for sample in range(samples):
            keep = np.ones((rows, X + H))
            if share:
                keep = masks(seed, m, sample, rows, X + H, share)
            h, d, mu = np.zeros((rows, H)), np.zeros(rows), np.zeros(rows)
            pre = rounded(f) @ w["encoder"][m] + w["encoder_bias"][m]
            means, variances, states = [], [], []
            for j in range(steps):
                shift = d[:, None] * w["encoder"][m, 0] if feedback else 0.0
                x = rounded(np.maximum(pre + shift, 0.0) * keep[:, :X])
                of_member = {name: array[m] for name, array in w.items()}
                h = unit(of_member, x, h, rounded)
                y = rounded(normalised_state(of_member, h) * keep[:, X:])
                read = y @ w["heads"][m]
                d = read[:, 0]
                mu = mu + d
                means.append(mu)
                variances.append(read[:, 1] + w["log_variance_bias"][m] + np.log(j + 1.0))
                if "projection" in w:
                    states.append(y @ w["projection"][m] + w["projection_bias"][m])
            made = (np.stack(means, 1), np.stack(variances, 1), h)
            for into, array in zip(out, made, strict=False):
                into.append(array)
            if states:
                out[3].append(np.stack(states, 1))
    return Expected(*(np.stack(part) if part else np.zeros(0) for part in out))


def rows_of(count: int, seed: int = 2) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, F)).astype(np.float32)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("feedback", [False, True])
def test_rollouts_are_those_of_numpy(
    after: bool, normalised: bool, share: float, feedback: bool
) -> None:
    made, f = ensemble(after=after, normalised=normalised), rows_of(4)
    samples = 3 if share else 1
    got = rollout(made, f, 9, feedback=feedback, dropout=share, samples=samples, seed=7)
    expected = reference(
        made, f.astype(np.float64), 9, feedback=feedback, share=share, samples=samples, seed=7
    )
    for name in Expected._fields:
        array = getattr(got, name)
        assert array.shape == getattr(expected, name).shape
        np.testing.assert_allclose(array, getattr(expected, name), rtol=2e-5, atol=2e-5)


def test_predicted_states_have_any_width() -> None:
    for width in (1, 128):
        made = ensemble(width=width)
        got = rollout(made, rows_of(4), 5)
        assert got.expected_states.shape == (4, 5, width)
        assert got.predicted is not None
        np.testing.assert_allclose(got.expected_states, got.predicted.mean(0))
    plain = rollout(ensemble(width=0), rows_of(4), 5)
    assert plain.predicted is None
    with pytest.raises(ValueError, match="the ensemble has no projection"):
        _ = plain.expected_states
    with_head, without = rollout(made, rows_of(4), 5), rollout(
        replace(made, projection=None, projection_bias=None), rows_of(4), 5
    )  # fmt: skip
    assert with_head.mean.tobytes() == without.mean.tobytes()


def test_a_row_and_a_sample_have_a_mask_of_their_own() -> None:
    """Bits depend on no other row, sample, step or thread."""
    made, f = ensemble(normalised=True), rows_of(5)
    options = {"dropout": 0.4, "seed": 3}
    whole = rollout(made, f, 6, samples=4, **options)
    again = rollout(made, f, 6, samples=4, threads=1, **options)
    assert whole.mean.tobytes() == again.mean.tobytes()
    fewer = rollout(made, f[:2], 3, samples=2, **options)
    shaped = whole.mean.reshape(E, 4, 5, 6)[:, :2, :2, :3]
    np.testing.assert_array_equal(fewer.mean.reshape(E, 2, 2, 3), shaped)
    other = rollout(made, f, 6, samples=4, dropout=0.4, seed=4)
    assert (other.mean != whole.mean).all()
    same_rows = rollout(made, np.repeat(f[:1], 5, 0), 6, **options)
    assert len({row.tobytes() for row in same_rows.mean[0]}) == 5


def test_uncertainties_of_samples_add_up() -> None:
    made, f = ensemble(), rows_of(6)
    got = rollout(made, f, 4, dropout=0.2, samples=8, seed=1)
    parts = got.mean.reshape(E, 8, 6, 4)
    np.testing.assert_allclose(got.between_samples, parts.var(1).mean(0), rtol=1e-4, atol=1e-8)
    between = parts.mean(1).var(0)
    np.testing.assert_allclose(got.epistemic, got.between_samples + between, rtol=1e-4, atol=1e-7)
    assert (rollout(made, f, 4).between_samples == 0.0).all()
    assert (rollout(made, f, 4, dropout=0.2).between_samples == 0.0).all()


def test_masks_drop_their_share() -> None:
    """6 members and samples x 400 rows x 10 units, 24000 draws: within 5 sigma."""
    made = ensemble(width=0)
    zero = {name: np.zeros_like(array) for name, array in made.arrays().items()}
    counted = masks(5, 1, 2, 400, X, 0.3)
    assert set(np.unique(counted)) == {0.0, 1.0 / 0.7}
    drawn = np.concatenate([masks(5, m, s, 400, X, 0.3) for m in range(3) for s in range(2)])
    sigma = (0.3 * 0.7 / drawn.size) ** 0.5
    assert abs((drawn == 0.0).mean() - 0.3) < 5.0 * sigma
    assert (rollout(Ensemble(**zero), rows_of(3), 2, dropout=0.3).mean == 0.0).all()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("normalised", [False, True])
def test_sixteen_bits_are_rounded_before_products(after: bool, normalised: bool) -> None:
    """Within a rounding of the oracle, and within the documented error of 32 bits."""
    made, f = ensemble(after=after, normalised=normalised), rows_of(16)
    got = rollout(made, f, 12, precision="float16")
    expected = reference(made, f.astype(np.float64), 12, half=True)
    exact = reference(made, f.astype(np.float64), 12)
    size = np.abs(exact.mean).mean()
    # A sum near the middle of two halves rounds either way: one unit in the last place, 2^-11.
    assert np.abs(got.mean - expected.mean).mean() < 2e-4 * size
    error = np.abs(got.mean - exact.mean).mean() / size
    assert 1e-5 < error < 3e-3
    halves = made.to_half()
    assert halves.encoder.dtype == np.float16
    again = rollout(halves, f, 12, precision="float16")
    assert again.mean.tobytes() == got.mean.tobytes()
    tensors = rollout(made, torch.from_numpy(f), 12, precision="float16")
    assert tensors.mean.numpy().tobytes() == got.mean.tobytes()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_of_an_ensemble_give_the_whole(count: int) -> None:
    made, f = ensemble(after=True, normalised=True), torch.from_numpy(rows_of(4))
    first = torch.from_numpy(np.random.default_rng(3).standard_normal((E, 4, H)).astype(np.float32))
    whole = rollout(made, f, 5, state=first, states=True)
    parts = made.spread(["cpu"] * count)
    assert len(parts) == count
    got = rollout_on(parts, f, 5, state=first, states=True)
    for name in ("mean", "log_variance", "state", "states", "predicted", "expected"):
        assert torch.equal(getattr(got, name), getattr(whole, name))
    assert rollout_on(ensemble(width=0).spread(["cpu"]), f, 5).predicted is None


def test_parts_that_cannot_be_are_refused() -> None:
    made, f = ensemble(), torch.from_numpy(rows_of(4))
    for devices in ([], ["cpu"] * 4):
        with pytest.raises(ValueError, match=r"give from 1 to 3, one a member"):
            made.spread(devices)
    with pytest.raises(pl.InputError, match="parts is empty"):
        rollout_on([], f, 3)
    with pytest.raises(pl.InputError, match="dropout needs the numbers of the members"):
        rollout_on(made.spread(["cpu"]), f, 3, dropout=0.1)
    with pytest.raises(TypeError, match="features is of type ndarray; give a tensor of torch"):
        rollout_on(made.spread(["cpu"]), rows_of(4), 3)


def test_a_nan_stays_in_its_row() -> None:
    made, f = ensemble(normalised=True), rows_of(4)
    clean = rollout(made, f, 3, dropout=0.5, seed=2)
    f[1, 2] = np.nan
    got = rollout(made, f, 3, dropout=0.5, seed=2)
    assert clean.predicted is not None
    assert got.predicted is not None
    others = [0, 2, 3]
    np.testing.assert_array_equal(got.predicted[:, others], clean.predicted[:, others])
    assert np.isnan(got.predicted[:, 1]).all()


def test_files_hold_the_further_weights(tmp_path: Path) -> None:
    made = ensemble(after=True, normalised=True)
    made.save(tmp_path / "e")
    loaded = Ensemble.load(tmp_path / "e")
    assert rollout(loaded, rows_of(2), 3).mean.tobytes() == rollout(
        made, rows_of(2), 3
    ).mean.tobytes()  # fmt: skip
    replace(made, state_shift=None).save(tmp_path / "e")
    with pytest.raises(ValueError, match=r"lacks the tensors \['state_shift'\]"):
        Ensemble.load(tmp_path / "e")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": 1.0}, r"dropout is 1.0; it must be at least 0 and below 1"),
        ({"dropout": float("nan")}, r"dropout is nan"),
        ({"samples": 2}, r"samples is 2, but without dropout all are equal"),
        ({"samples": 0}, r"samples must be at least 1"),
        ({"seed": -1}, r"seed must be at least 0"),
        ({"precision": "float8"}, r"precision must be float32 or float16 \(got 'float8'\)"),
        ({"state": np.zeros((E, 2, H), np.float32)}, r"state has shape \[3, 2, 17\]; it must be"),
    ],
)
def test_options_out_of_range_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rollout(ensemble(), rows_of(4), 3, **options)


def test_weights_that_do_not_fit_are_refused() -> None:
    made = ensemble(normalised=True)
    for change, message in (
        ({"state_shift": None}, "state_gain and state_shift must both be given, or neither"),
        ({"projection": None}, "projection and projection_bias must both be given, or neither"),
        ({"projection": np.zeros((E, H, W + 1), np.float32)}, r"projection has shape \[3, 17, 6\]"),
        ({"state_gain": np.zeros((E, H + 1), np.float32)}, r"state_gain has shape \[3, 18\]"),
    ):
        with pytest.raises(pl.InputError, match=message):
            rollout(replace(made, **change), rows_of(4), 3)
    with pytest.raises(ValueError, match=r"heads has values up to 1e\+05; float16 ends at 65504"):
        replace(made, heads=made.heads * 0 + 1e5).to_half()
