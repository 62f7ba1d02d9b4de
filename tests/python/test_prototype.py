"""Rules of one's own in Python: as exact as compounds of the core, resumed, used by layers."""

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

PERFECT = pl.IOParameters(is_perfect=True)
READS = {"forward": PERFECT, "backward": PERFECT}


def cells(**changes: Any) -> pl.devices.SoftBounds:
    return pl.devices.SoftBounds(dw_min=0.01, **changes)


def array(**changes: Any) -> pl.SingleConfig:
    return pl.SingleConfig(**{"device": cells(), **READS, **changes})


class TikiTaka(pl.prototype.Rule):
    """Tiki-Taka v1: one column of the fast array is written onto the slow one in each step."""

    def __init__(self, config: pl.SingleConfig, gamma: float = 0.0, seed: int = 0) -> None:
        super().__init__(4, 6, {"slow": config, "fast": config}, digital={"next": 0.0}, seed=seed)
        self.gamma = gamma

    def factors(self) -> dict[str, float]:
        return {"slow": 1.0, "fast": self.gamma}

    def step(self, x: np.ndarray, d: np.ndarray, lr: float) -> None:
        self.pulse("fast", x, d, lr)
        column = int(self.digital["next"])
        line = np.zeros((1, self.x_size), np.float32)
        line[0, column] = 1.0
        self.pulse("slow", line, -self.arrays["fast"].forward(line), lr)
        self.digital["next"] = (column + 1) % self.x_size


class Chopped(pl.prototype.Rule):
    """Two noisy arrays, a mean in digital memory, and a random sign."""

    def __init__(self, outputs: int = 4, inputs: int = 6, seed: int = 3) -> None:
        noisy = pl.SingleConfig(device=cells())
        memory = {"mean": np.zeros((outputs, inputs)), "sign": 1.0}
        super().__init__(outputs, inputs, {"w": noisy, "p": noisy}, digital=memory, seed=seed)

    def factors(self) -> dict[str, float]:
        return {"w": 1.0, "p": 0.5 * float(self.digital["sign"])}

    def step(self, x: np.ndarray, d: np.ndarray, lr: float) -> None:
        if self.random().random() < 0.5:
            self.digital["sign"] = -self.digital["sign"]
        self.pulse("p", x, float(self.digital["sign"]) * d, lr)
        self.digital["mean"] += 0.1 * (self.arrays["p"].weights - self.digital["mean"])
        self.write("w", 0.2 * self.digital["mean"])


class Residual(pl.prototype.Rule):
    """Residual learning with a mean of the residual in digital memory."""

    def __init__(self, outputs: int, inputs: int, seed: int) -> None:
        noisy = pl.SingleConfig(device=pl.devices.EcRam())
        memory = {"mean": np.zeros((outputs, inputs))}
        super().__init__(outputs, inputs, {"w": noisy, "p": noisy}, digital=memory, seed=seed)

    def factors(self) -> dict[str, float]:
        return {"w": 1.0, "p": 0.5}

    def step(self, x: np.ndarray, d: np.ndarray, lr: float) -> None:
        self.pulse("p", x, d, lr)
        self.digital["mean"] += 0.2 * (self.arrays["p"].weights - self.digital["mean"])
        self.write("w", 0.05 * self.digital["mean"])


def copied(rule: Chopped, how: str) -> Chopped:
    if how == "copy":
        return copy.deepcopy(rule)
    again: Chopped = pickle.loads(pickle.dumps(rule))  # noqa: S301 - of this test
    return again


def samples(count: int, outputs: int = 4, inputs: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (count, 1, inputs)).astype(np.float32)
    return x, rng.uniform(-1, 1, (count, 1, outputs)).astype(np.float32)


@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_a_rule_in_python_equals_the_compound(gamma: float) -> None:
    """Without noise and spreads, the transfer compound and the rule differ by rounding alone."""
    exact = cells(
        dw_min_dtod=0.0, dw_min_std=0.0, w_max_dtod=0.0, w_min_dtod=0.0, up_down=0.1,
        up_down_dtod=0.0,
    )  # fmt: skip
    update = pl.UpdateParameters(pulse_type="deterministic_implicit")
    rule = TikiTaka(array(device=exact, update=update), gamma)
    compound = pl.Tile(4, 6, pl.TikiTaka(
        exact, gamma=gamma, update=update, transfer_update=update, transfer_forward=PERFECT,
        **READS,
    ))  # fmt: skip
    for x, d in zip(*samples(40), strict=True):
        rule.update(x, d, 0.2)
        compound.update(x, d, 0.2)
    assert np.abs(rule.arrays["slow"].weights).max() > 0.05
    np.testing.assert_allclose(rule.arrays["fast"].weights, compound.arrays["fast_0"], atol=1e-6)
    np.testing.assert_allclose(rule.arrays["slow"].weights, compound.visible, atol=1e-6)
    np.testing.assert_allclose(rule.weights, compound.weights, atol=1e-6)
    x = samples(1)[0][0]
    np.testing.assert_allclose(rule.forward(x), x @ compound.weights.T, atol=1e-6)


def test_a_write_changes_cells_as_asked() -> None:
    """The mean over 400 writes of cells without asymmetry, within 5 standard errors."""
    config = array(device=pl.devices.ConstantStep(dw_min=0.01, w_max=5.0, w_min=-5.0))
    wanted = np.random.default_rng(0).uniform(-0.1, 0.1, (3, 5)).astype(np.float32)
    wanted[:, 2] = 0.0
    changes = []
    for seed in range(400):

        class Write(pl.prototype.Rule):
            def factors(self) -> dict[str, float]:
                return {"w": 1.0}

            def step(self, x: np.ndarray, d: np.ndarray, lr: float) -> None:  # noqa: ARG002
                self.write("w", wanted)

        rule = Write(3, 5, {"w": config}, seed=seed)
        rule.update(np.ones((1, 5)), np.ones((1, 3)), 1.0)
        changes.append(rule.weights)
    mean, error = np.mean(changes, 0), np.std(changes, 0) / 20.0
    assert (np.abs(mean - wanted)[:, [0, 1, 3, 4]] < 5.0 * error[:, [0, 1, 3, 4]]).all()
    assert not np.any(mean[:, 2])


@pytest.mark.parametrize("how", ["state", "pickle", "copy"])
def test_a_rule_resumes_to_the_bit(how: str) -> None:
    x, d = samples(9)
    rule = Chopped()
    for one in range(5):
        rule.update(x[one], d[one], 0.1)
    if how == "state":
        again = Chopped()
        file = io.BytesIO()
        np.savez(file, **rule.state())
        file.seek(0)
        again.load_state(dict(np.load(file)))
    else:
        again = copied(rule, how)
    for one in range(5, 9):
        for each in (rule, again):
            each.forward(x[one])
            each.update(x[one], d[one], 0.1)
    one, other = rule.state(), again.state()
    assert list(one) == list(other)
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert rule.steps == 9


def test_every_array_counts_each_mini_batch() -> None:
    x, d = samples(3)
    rule = TikiTaka(array())
    rule.update(np.concatenate(x), np.concatenate(d), 0.1)
    assert [tile.counters["mini_batches"] for tile in rule.arrays.values()] == [1, 1]


def test_written_weights_begin_anew() -> None:
    x, d = samples(1)
    rule = Chopped()
    rule.update(x[0], d[0], 0.1)
    wanted = np.linspace(-0.2, 0.2, 24, dtype=np.float32).reshape(4, 6)
    rule.weights = wanted
    np.testing.assert_allclose(rule.weights, wanted, atol=1e-6)
    assert not np.any(rule.digital["mean"])
    assert rule.digital["sign"] == 1.0


def layer(seed: int = 3) -> pl.nn.RuleLinear:
    torch.manual_seed(1)
    return pl.nn.RuleLinear(Chopped(seed=seed))


def test_a_layer_makes_the_steps_of_its_rule() -> None:
    made, rule = layer(), Chopped()
    rule.weights = made.weight.detach().numpy()
    x, d = (torch.from_numpy(part[:, 0]) for part in samples(8))
    y = made(x)
    np.testing.assert_array_equal(
        y.detach().numpy(), rule.forward(x.numpy()) + made.bias.detach().numpy()
    )
    y.backward(d)
    torch.testing.assert_close(made.weight.grad, d.T @ x)
    torch.optim.SGD(made.parameters(), lr=0.1).step()
    rule.update(x.numpy(), d.numpy(), 0.1)
    assert made.weight.grad is None
    np.testing.assert_array_equal(made.weight.detach().numpy(), rule.weights)


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, pl.optim.AnalogSGD])
def test_a_network_of_rules_learns_and_resumes(
    optimizer: type[torch.optim.Optimizer],
) -> None:
    def network() -> torch.nn.Module:
        torch.manual_seed(0)
        rules = [Residual(16, 8, seed=1), Residual(2, 16, seed=2)]
        return torch.nn.Sequential(
            pl.nn.RuleLinear(rules[0]), torch.nn.Tanh(), pl.nn.RuleLinear(rules[1])
        )

    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0] > x[:, 1]).long()
    model = network()
    losses = []

    def train(model: torch.nn.Module, steps: int) -> None:
        steps_of = optimizer(model.parameters(), lr=0.1)  # type: ignore[call-arg]
        for _ in range(steps):
            steps_of.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            steps_of.step()
            losses.append(float(loss.detach()))

    train(model, 100)
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:5])
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    again = network()
    again.load_state_dict(torch.load(file, weights_only=True))
    train(again, 3)
    train(model, 3)
    ours, theirs = model.state_dict(), again.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert losses[-6:-3] == losses[-3:]


def test_gradients_may_be_scaled_accumulated_and_dropped() -> None:
    x, d = (torch.from_numpy(part[:, 0]) for part in samples(6))
    whole, parts = layer(), layer()
    whole(x).backward(d)
    whole.weight.grad *= 0.5
    parts(x).sum().backward()
    parts.zero_grad()  # the first gradient is dropped
    reads = parts(x[:3]), parts(x[3:])
    reads[0].backward(0.5 * d[:3])
    reads[1].backward(0.5 * d[3:])
    for each in (whole, parts):
        torch.optim.SGD([each.weight], lr=0.1).step()
    weights = [each.rule.arrays["p"].weights for each in (whole, parts)]
    np.testing.assert_array_equal(*weights)

    whole(x).backward(d)
    whole.weight.grad[0] = 0.0
    before = whole.rule.state()
    with pytest.raises(RuntimeError, match="no multiple of what backward"):
        torch.optim.SGD([whole.weight], lr=0.1).step()
    after = whole.rule.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_evaluation_leaves_training_as_it_is() -> None:
    made, other = layer(), layer()
    x, d = (torch.from_numpy(part[:, 0]) for part in samples(6))
    made.eval()
    with torch.no_grad():
        made(x)
    made.train()
    for each in (made, other):
        each(x).backward(d)
        torch.optim.SGD(each.parameters(), lr=0.1).step()
    torch.testing.assert_close(made.weight, other.weight, rtol=0, atol=0)


class Wrong(TikiTaka):
    def factors(self) -> dict[str, float]:
        return {"slow": 1.0, "quick": 0.5}


class Nothing(TikiTaka):
    def factors(self) -> dict[str, float]:
        return {"fast": 1.0}


class Grows(Chopped):
    def step(self, x: np.ndarray, d: np.ndarray, lr: float) -> None:  # noqa: ARG002
        self.digital["mean"] = np.zeros(3)


X, D = np.zeros((2, 6)), np.zeros((2, 4))
RULE = pl.prototype.Rule


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: RULE(4, 6, {}), pl.ConfigError, "arrays is empty"),
        (lambda: RULE(4, 6, {"a.b": array()}), pl.ConfigError, "'a.b' is no name"),
        (lambda: RULE(4, 6, {"a": cells()}), TypeError, "give a configuration"),
        (lambda: RULE(0, 6, {"a": array()}), pl.ConfigError, "d_size"),
        (lambda: RULE(4, 6, {"a": array()}).forward(X), NotImplementedError, "define factors"),
        (lambda: RULE(4, 6, {"a": array()}).update(X, D, 1.0), NotImplementedError, "define step"),
        (lambda: RULE(4, 6, {"a": array()}, digital={"m": np.nan}), pl.InputError, "not finite"),
        (lambda: Wrong(array()).forward(X), pl.ConfigError, "names 'quick'; the arrays are slow"),
        (lambda: Chopped().forward(D), pl.InputError, r"x has shape \[2, 4\]; expected \[m, 6\]"),
        (lambda: Chopped().backward(X), pl.InputError, r"d has shape \[2, 6\]"),
        (lambda: Chopped().update(X, D[:1], 0.1), pl.InputError, "x has 2 rows and d has 1"),
        (lambda: Chopped().update(X + np.inf, D, 0.1), pl.InputError, "x has values that are not"),
        (lambda: Chopped().update(X, D, np.nan), pl.ConfigError, "lr is nan"),
        (lambda: Grows().update(X, D, 0.1), pl.InputError, r"shape \[3\] after step"),
        (lambda: setattr(Chopped(), "weights", X), pl.InputError, r"expected \[4, 6\]"),
        (lambda: setattr(Nothing(array()), "weights", np.zeros((4, 6))), pl.ConfigError,
         "'slow', the first one, has the factor 0"),
        (lambda: Chopped().load_state(Chopped(seed=4).state()), pl.StateError, "of seed 4"),
        (lambda: Chopped().load_state({}), pl.StateError, "incomplete"),
        (lambda: Chopped().load_state(TikiTaka(array()).state()), pl.StateError, "has not"),
        (lambda: Chopped().load_state(Chopped(4, 7).state()), pl.StateError, "expected"),
        (lambda: pl.nn.RuleLinear(array()), TypeError, "prototype.Rule"),
        (lambda: layer()(torch.zeros(2, 5)), ValueError, "takes 6 features"),
        (lambda: layer().set_weights(torch.zeros(4, 6)), ValueError, "bias is None"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_refused_state_changes_nothing() -> None:
    rule = Chopped()
    x, d = samples(1)
    rule.update(x[0], d[0], 0.1)
    good, before = Chopped().state(), rule.state()
    damages = {
        "arrays.w.visible": np.zeros((4, 6), np.float32),
        "digital.mean": np.full((4, 6), np.nan, np.float32),
        "counts": np.array([3, -1]),
    }
    for name, value in damages.items():
        assert name in good or name.startswith("arrays")
        with pytest.raises(pl.StateError):
            rule.load_state({**good, name: value})
    after = rule.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)
