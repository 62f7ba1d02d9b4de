"""Kernels of the forecaster from Python: against torch, their arrays, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import pulsora as pl
from pulsora.forecast import Ensemble, ResidualMemory, encode, rollout, truncated_svd

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ensemble(members: int = 2, features: int = 4, encoded: int = 5, hidden: int = 6) -> Ensemble:
    return Ensemble(
        encoder=normal(members, features, encoded),
        encoder_bias=normal(members, encoded),
        input=normal(members, encoded, 3 * hidden),
        recurrent=normal(members, hidden, 3 * hidden),
        bias=normal(members, 3 * hidden),
        heads=normal(members, hidden, 2),
        log_variance_bias=normal(members),
    )


@pytest.mark.parametrize("bias", [True, False])
def test_a_unit_of_torch_gives_the_states_of_torch(bias: bool) -> None:
    torch.manual_seed(0)
    gru = torch.nn.GRU(5, 7, bias=bias, batch_first=True)
    x = torch.rand(3, 5)  # positive, so that the encoder below leaves it alone
    first = torch.randn(1, 3, 7)
    with torch.no_grad():
        expected, _ = gru(x[:, None].expand(-1, 20, -1), first)
    unit = {name: value[None] for name, value in Ensemble.unit_from_torch(gru).items()}
    made = Ensemble(
        encoder=np.eye(5, dtype=np.float32)[None],
        encoder_bias=np.zeros((1, 5), np.float32),
        heads=np.zeros((1, 7, 2), np.float32),
        log_variance_bias=np.zeros(1, np.float32),
        **unit,
    )
    got = rollout(made, x, 20, state=first, feedback=False, states=True)
    assert isinstance(got.states, torch.Tensor)
    torch.testing.assert_close(got.states[0], expected, atol=3e-6, rtol=1e-5)
    torch.testing.assert_close(got.state[0], expected[:, -1], atol=3e-6, rtol=1e-5)
    with pytest.raises(ValueError, match="one layer and one direction"):
        Ensemble.unit_from_torch(torch.nn.GRU(5, 7, num_layers=2))


def test_uncertainties() -> None:
    many = rollout(ensemble(), normal(3, 4), 6)
    np.testing.assert_allclose(many.epistemic, many.mean.var(0), rtol=1e-5)
    np.testing.assert_allclose(many.aleatoric, np.exp(many.log_variance).mean(0), rtol=1e-6)
    assert many.states is None
    one = rollout(ensemble(members=1), normal(3, 4), 6)
    assert (one.epistemic == 0.0).all()


@pytest.mark.parametrize("method", ["randomised", "gram", "exact"])
def test_decompositions_agree_with_numpy(method: str) -> None:
    left, right = np.linalg.qr(normal(60, 20))[0], np.linalg.qr(normal(90, 20))[0]
    values = 0.8 ** np.arange(20)
    a = ((left * values) @ right.T).astype(np.float32)
    got = truncated_svd(a, 6, method=method)
    assert got.info == 0
    np.testing.assert_allclose(got.S, values[:6], rtol=1e-4)
    best = (left[:, :6] * values[:6]) @ right[:, :6].T
    assert np.linalg.norm((got.U * got.S) @ got.V - best) < 1e-3
    tensor = truncated_svd(torch.from_numpy(a).double(), 6, method=method)
    assert isinstance(tensor.U, torch.Tensor)
    np.testing.assert_array_equal(tensor.V.numpy(), got.V)


def test_corrections_of_memories() -> None:
    memory = ResidualMemory(3, capacity=5, nearest=2)
    assert memory.corrections(normal(2, 3), [1.0, 2.0], 0.0).tolist() == [0.0, 0.0]
    for step in range(9):
        memory.remember(normal(3), 0.1 * step, step, 0.5)
    assert len(memory) == 5
    other = ResidualMemory(3, capacity=5, nearest=2)
    other.load_state_dict(memory.state_dict())
    keys = normal(4, 3)
    given = memory.corrections(keys, np.ones(4), 10.0)
    np.testing.assert_array_equal(other.corrections(keys, np.ones(4), 10.0), given)
    assert (np.abs(given) <= 0.2).all()


def test_any_floating_point_numbers_are_taken() -> None:
    x, weights, bias = (torch.randn(size).bfloat16() for size in ((3, 4), (4, 2), (2,)))
    expected = encode(x.float(), weights.float(), bias.float())
    assert torch.equal(encode(x, weights, bias), expected)


def test_only_units_of_a_gru_are_taken() -> None:
    """Other units have equally many weights, which would be split in the wrong places."""
    with pytest.raises(TypeError, match=r"gru is of type LSTM; give a torch\.nn\.GRU or GRUCell"):
        Ensemble.unit_from_torch(torch.nn.LSTM(3, 6))
    with pytest.raises(TypeError, match="gru is of type RNN"):
        Ensemble.unit_from_torch(torch.nn.RNN(3, 6))


def test_memories_that_are_damaged_are_refused() -> None:
    memory = ResidualMemory(3)
    memory.remember(normal(3), 1.0, 0.0)
    saved = memory.state_dict()
    with pytest.raises(pl.InputError, match="the linear part has nan"):
        memory.load_state_dict(saved | {"linear": saved["linear"] * np.nan})
    with pytest.raises(pl.InputError, match="saved lacks entries, keys, linear"):
        memory.load_state_dict({})
    assert np.isnan(memory.corrections(normal(1, 3), [np.nan], 0.0)).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(pl.InputError, match="x is a masked array"):
        encode(np.ma.masked_array(normal(1, 4)), normal(4, 2), normal(2))
    with pytest.raises(TypeError, match="x is None; give floating-point numbers"):
        encode(None, normal(4, 2), normal(2))
    made = ensemble()
    with pytest.raises(TypeError, match="x has type int64; give floating-point numbers"):
        encode(np.arange(4)[None], normal(4, 2), normal(2))
    with pytest.raises(pl.InputError, match=r"weights has shape \[3, 2\]; it must be \[4, 2\]"):
        encode(normal(1, 4), normal(3, 2), normal(2))
    with pytest.raises(pl.InputError, match="features have 5 columns; the encoder takes 4"):
        rollout(made, normal(1, 5), 3)
    with pytest.raises(
        pl.InputError, match=r"heads has shape \[12\]; it must be \[members, hidden"
    ):
        rollout(replace(made, heads=normal(12)), normal(1, 4), 3)
    with pytest.raises(pl.InputError, match=r"bias has shape \[2, 3\]; it must be \[2, 18\]"):
        rollout(replace(made, bias=normal(2, 3)), normal(1, 4), 3)
    with pytest.raises(pl.InputError, match=r"x has shape \[4\]; it must be a matrix"):
        encode(normal(4), normal(4, 2), normal(2))
    with pytest.raises(pl.InputError, match="steps is 76; it must be from 1 to 75"):
        rollout(made, normal(1, 4), 76)
    with pytest.raises(pl.InputError, match=r"state has shape \[1, 1, 6\]"):
        rollout(made, normal(1, 4), 3, state=normal(1, 1, 6))
    with pytest.raises(pl.InputError, match="k is 5; it must be from 1 to 4"):
        truncated_svd(normal(4, 6), 5)
    with pytest.raises(pl.ConfigError, match="method is 'fast'; it must be randomised, gram or"):
        truncated_svd(normal(4, 6), 2, method="fast")
    with pytest.raises(pl.InputError, match="takes up to 64: use 'randomised'"):
        truncated_svd(normal(65, 66), 2, method="gram")
    with pytest.raises(ValueError, match="seed must be at least 0"):
        truncated_svd(normal(4, 6), 2, seed=-1)
    with pytest.raises(pl.InputError, match="confidence is 2"):
        ResidualMemory(1).remember(normal(1), 1.0, 0.0, 2.0)
