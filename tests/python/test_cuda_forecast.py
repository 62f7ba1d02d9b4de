"""Kernels of the forecaster on a GPU: results close to the CPU's, and mixed devices refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import pulsora as pl
from pulsora.forecast import (
    Ensemble,
    ResidualMemory,
    encode,
    rollout,
    rollout_on,
    truncated_svd,
)

pytestmark = pytest.mark.skipif(pl.cuda_device_count() == 0, reason="needs a GPU")


def close(got: torch.Tensor, expected: np.ndarray, tolerance: float) -> None:
    assert got.is_cuda
    np.testing.assert_allclose(got.cpu().numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("steps", [1, 20])
def test_rollouts_are_those_of_the_cpu(steps: int) -> None:
    trained = Ensemble.trained()
    features = np.random.default_rng(1).standard_normal((16, 64)).astype(np.float32)
    expected = rollout(trained, features, steps, states=True)
    got = rollout(trained.to("cuda"), torch.from_numpy(features).cuda(), steps, states=True)
    tolerance = 1e-5 if steps == 1 else 1e-4
    for name in ("mean", "log_variance", "state", "states", "expected", "epistemic", "aleatoric"):
        close(getattr(got, name), getattr(expected, name), tolerance)
    assert torch.equal(got.states[:, :, -1], got.state)
    again = rollout(trained.to("cuda"), torch.from_numpy(features).double().cuda(), steps)
    assert torch.equal(again.mean, got.mean)


def test_rollouts_are_captured_by_graphs_of_torch() -> None:
    trained = Ensemble.trained().to("cuda")
    features = torch.randn(16, 64, device="cuda")
    expected = [rollout(trained, features * factor, 8).mean for factor in (1.0, 2.0)]
    graph = torch.cuda.CUDAGraph()
    given = features.clone()
    with torch.cuda.graph(graph):
        got = rollout(trained, given, 8).mean
    for factor, mean in zip((1.0, 2.0), expected, strict=True):
        given.copy_(features * factor)
        graph.replay()
        assert torch.equal(got, mean)


def test_encodings_and_corrections() -> None:
    rng = np.random.default_rng(2)
    x, weights, bias = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((32, 64), (64, 128), (128,))
    )
    x[3, 5] = np.nan
    on_gpu = [torch.from_numpy(array).cuda() for array in (x, weights, bias)]
    got = encode(*on_gpu)
    close(got, encode(x, weights, bias), 1e-5)
    assert torch.isnan(got[3]).all()
    assert torch.equal(encode(on_gpu[0][::2], *on_gpu[1:]).nan_to_num(7), got[::2].nan_to_num(7))


@pytest.mark.parametrize("method", ["randomised", "gram", "exact"])
def test_decompositions(method: str) -> None:
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.standard_normal((n, 20)))[0] for n in (60, 900))
    a = ((left * 0.8 ** np.arange(20)) @ right.T).astype(np.float32)
    expected = truncated_svd(a, 6, method=method)
    got = truncated_svd(torch.from_numpy(a).cuda(), 6, method=method)
    again = truncated_svd(torch.from_numpy(a).cuda(), 6, method=method)
    for name in ("U", "S", "V"):
        close(getattr(got, name), getattr(expected, name), 2e-4)
        assert torch.equal(getattr(again, name), getattr(got, name))
    identity = torch.eye(6, device="cuda")
    assert (got.U.T @ got.U - identity).abs().max() < 1e-5
    assert (got.V @ got.V.T - identity).abs().max() < 1e-5


def test_devices_that_mix_are_refused() -> None:
    features = torch.zeros(2, 64, device="cuda")
    with pytest.raises(pl.DeviceError, match="features is on cuda:0, and encoder is not"):
        rollout(Ensemble.trained(), features, 3)
    with pytest.raises(pl.DeviceError, match="x is on the CPU, and weights is not"):
        encode(np.zeros((1, 64), np.float32), torch.zeros(64, 8).cuda(), torch.zeros(8).cuda())
    with pytest.raises(pl.DeviceError, match=r"needed in host memory: give keys\.cpu\(\)"):
        ResidualMemory(64).corrections(features, [0.0, 0.0], 0.0)
    with pytest.raises(TypeError, match=r"x has type torch\.int64; give floating-point numbers"):
        encode(torch.zeros(1, 2, dtype=torch.int64).cuda(), features, features)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_dropout_norms_and_predicted_states_are_those_of_the_cpu(
    normalised: bool, precision: str
) -> None:
    rng = np.random.default_rng(4)
    trained = Ensemble.trained()
    members, hidden, _ = trained.heads.shape

    def normal(*shape: int, scale: float) -> np.ndarray:
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    gain, shift = 1.0 + normal(members, hidden, scale=0.1), normal(members, hidden, scale=0.1)
    made = dataclasses.replace(
        trained,
        state_gain=gain if normalised else None,
        state_shift=shift if normalised else None,
        projection=normal(members, hidden, 128, scale=hidden**-0.5),
        projection_bias=normal(members, 128, scale=1.0),
    )
    features = rng.standard_normal((6, 64)).astype(np.float32)
    options = {"dropout": 0.3, "samples": 5, "seed": 9, "precision": precision}
    expected = rollout(made, features, 8, **options)
    got = rollout(made.to("cuda"), torch.from_numpy(features).cuda(), 8, **options)
    tolerance = 1e-4 if precision == "float32" else 2e-2
    for name in ("mean", "log_variance", "state", "predicted", "between_samples"):
        close(getattr(got, name), getattr(expected, name), tolerance)
    again = rollout(made.to("cuda"), torch.from_numpy(features[:2]).cuda(), 3, **options)
    parts = got.mean.reshape(members, 5, 6, 8)[:, :, :2, :3]
    close(again.mean.reshape(members, 5, 2, 3), parts.cpu().numpy(), tolerance)


def test_members_on_several_streams_and_gpus() -> None:
    trained = Ensemble.trained()
    features = torch.randn(16, 64, device="cuda:0")
    whole = rollout(trained.to("cuda:0"), features, 8, states=True)
    places = [["cuda:0"], ["cuda:0"] * 3]
    if torch.cuda.device_count() > 1:
        places += [["cuda:0", "cuda:1"], ["cuda:1", "cuda:0", "cuda:1"]]
    for devices in places:
        got = rollout_on(trained.spread(devices), features, 8, states=True)
        for name in ("mean", "log_variance", "state", "states"):
            assert torch.equal(getattr(got, name), getattr(whole, name))
