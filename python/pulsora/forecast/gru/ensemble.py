"""An ensemble of gated recurrent units that continues rows of features over steps."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pulsora import _core, state
from pulsora.forecast.arrays import Work, host

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    Array = Any

__all__ = ["Ensemble", "Rollout", "rollout"]


@dataclass(frozen=True)
class Ensemble:
    """Weights of E members, each an encoder with X outputs and a GRU with H hidden units.

    The arrays are float32, on a GPU tensors of torch. Rows times matrices: a = x W + h U + b, with
    the gates z, r, n side by side. The state of a member moves by h <- (1 - z) h + z n, with n =
    tanh(x Wn + bn + (r h) Un), or, where `candidate_bias` is given, as in torch, tanh(x Wn + bn + r
    (h Un + cn)).

    Attributes:
        encoder: We [E, features, X].
        encoder_bias: be [E, X].
        input: W [E, X, 3 H].
        recurrent: U [E, H, 3 H].
        bias: b [E, 3 H].
        heads: [E, H, 2], from the state to the increment and the logarithm of the variance.
        log_variance_bias: [E].
        candidate_bias: cn [E, H], or None for units that reset the state before the product.
    """

    encoder: Array
    encoder_bias: Array
    input: Array
    recurrent: Array
    bias: Array
    heads: Array
    log_variance_bias: Array
    candidate_bias: Array | None = None

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The weights by name, in the order above; candidate_bias only if there is one."""
        return {name: host(name, array) for name, array in self._given().items()}

    def _given(self) -> dict[str, Array]:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in given.items() if array is not None}

    def to(self, device: Any) -> Ensemble:  # noqa: ANN401 - torch is optional
        """Copies the ensemble to torch tensors on a device such as "cuda", for rollouts there."""
        import torch  # noqa: PLC0415 - optional

        given = {name: torch.as_tensor(array) for name, array in self._given().items()}
        return Ensemble(**{name: array.float().to(device) for name, array in given.items()})

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the weights to a safetensors file, a tensor for each attribute, with a checksum.

        Raises:
            OSError: if the file cannot be written; a previous file is then as it was.
        """
        state.save(state.State(self.arrays(), {}).signed(), path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Ensemble:
        """The ensemble in a file that save() wrote. Nothing in the file is executed.

        Raises:
            OSError: if the file cannot be read.
            ValueError: if the file is damaged, or its tensors are not the weights of an ensemble.
        """
        arrays = state.load(path).tensors
        names = [field.name for field in fields(cls)]
        missing = [name for name in names[:-1] if name not in arrays]
        strange = [name for name in arrays if name not in names]
        if missing or strange:
            raise ValueError(
                f"{path} holds no ensemble: it lacks the tensors {missing}, and has {strange}"
            )
        for name in ("encoder", "recurrent"):
            if arrays[name].ndim != 3:
                shape = list(arrays[name].shape)
                raise ValueError(f"{path}: {name} has shape {shape}; it must have three dimensions")
        members, features, encoded = arrays["encoder"].shape
        hidden = arrays["recurrent"].shape[1]
        shapes = {
            "encoder": (members, features, encoded),
            "encoder_bias": (members, encoded),
            "input": (members, encoded, 3 * hidden),
            "recurrent": (members, hidden, 3 * hidden),
            "bias": (members, 3 * hidden),
            "heads": (members, hidden, 2),
            "log_variance_bias": (members,),
            "candidate_bias": (members, hidden),
        }
        for name, array in arrays.items():
            if array.shape != shapes[name]:
                raise ValueError(
                    f"{path}: {name} has shape {list(array.shape)}; by encoder and recurrent it "
                    f"must be {list(shapes[name])}"
                )
            if array.dtype != np.float32:
                raise ValueError(f"{path}: {name} has type {array.dtype}; it must be float32")
            if not np.isfinite(array).all():
                raise ValueError(f"{path}: {name} has values that are not finite (nan or inf)")
        return cls(**arrays)

    @staticmethod
    @functools.cache
    def trained() -> Ensemble:
        """The ensemble of the package, for `GRUForecaster`: 5 members with 64 hidden units.

        It was trained by scripts/train_forecaster.py.
        """
        return Ensemble.load(Path(__file__).with_name("ensemble.safetensors"))

    @staticmethod
    def unit_from_torch(gru: Any) -> dict[str, NDArray[np.float32]]:  # noqa: ANN401 - optional
        """Converts a `torch.nn.GRU` of one layer, or a `GRUCell`, to the weights of one member.

        torch has the gates in the order r, z, n, and z with the opposite meaning: h' = (1 - z) n +
        z h.

        Returns:
            input [X, 3 H], recurrent [H, 3 H], bias [3 H] and candidate_bias [H].

        Raises:
            ValueError: for several layers or directions.
            TypeError: for anything but a GRU.
        """
        import torch  # noqa: PLC0415 - optional

        if not isinstance(gru, torch.nn.GRU | torch.nn.GRUCell):
            raise TypeError(f"gru is of type {type(gru).__name__}; give a torch.nn.GRU or GRUCell")
        if getattr(gru, "num_layers", 1) != 1 or getattr(gru, "bidirectional", False):
            raise ValueError("gru must have one layer and one direction")
        values = {
            name.removesuffix("_l0"): tensor.detach().cpu().float().numpy()
            for name, tensor in gru.named_parameters()
        }
        size = values["weight_hh"].shape[1]
        zero = np.zeros(3 * size, np.float32)
        of_input, of_state = values.get("bias_ih", zero), values.get("bias_hh", zero)

        def gates(stacked: NDArray[np.float32]) -> NDArray[np.float32]:
            r, z, n = np.split(stacked, 3)
            turned: NDArray[np.float32] = np.concatenate([-z, r, n]).T.copy()
            return turned

        both = of_input + of_state
        bias = np.concatenate([both[: 2 * size], of_input[2 * size :]])
        return {
            "input": gates(values["weight_ih"]),
            "recurrent": gates(values["weight_hh"]),
            "bias": gates(bias),
            "candidate_bias": of_state[2 * size :].copy(),
        }


# The order of weights that the core takes.
_CORE_ORDER = tuple(field.name for field in fields(Ensemble))


class Rollout(NamedTuple):
    """Continuations of b rows over J steps by the E members of an ensemble."""

    mean: Array
    """The sum of a member's increments up to each step, [E, b, J]."""
    log_variance: Array
    """The logarithm of the variance that a member states for this sum, [E, b, J]."""
    state: Array
    """The last states, [E, b, H]."""
    states: Array | None
    """All states, [E, b, J, H]; None unless they were asked for."""

    @property
    def expected(self) -> Array:
        """The mean over the members, [b, J]."""
        return self.mean.mean(0)

    @property
    def epistemic(self) -> Array:
        """The variance between the members, [b, J]; 0 for a single member."""
        return ((self.mean - self.mean.mean(0)) ** 2).mean(0)

    @property
    def aleatoric(self) -> Array:
        """The mean of the variances that the members state, [b, J]."""
        values = self.log_variance
        return (values.exp() if hasattr(values, "exp") else np.exp(values)).mean(0)


def rollout(
    ensemble: Ensemble,
    features: Array,
    steps: int,
    *,
    state: Array | None = None,
    feedback: bool = True,
    states: bool = False,
    threads: int | None = None,
) -> Rollout:
    """Continues rows of features over steps by every member of an ensemble.

    Each step reads an increment off the state. With feedback, the encoder sees it at the next step
    as its feature 0, which is 0 at first.

    Args:
        ensemble: The weights.
        features: [b, features].
        steps: J, from 1 to 75. The first steps do not depend on how many follow.
        state: Initial states of the members, [E, b, H]; 0 by default.
        feedback: Whether increments are fed back, see above.
        states: Whether to return all states.
        threads: CPU threads; all that the process may run on by default.

    Features on a GPU are continued there, in one launch, by an ensemble that `Ensemble.to` has
    brought there. Sums are of another order than on the CPU, and agree to some 1e-5 a step.

    Raises:
        DeviceError: if features and ensemble are not on one device.
        InputError: for shapes that do not fit, more than 512 hidden units, and steps out of range.
        TypeError: for anything but floating-point arrays.
    """
    given = {name: getattr(ensemble, name) for name in _CORE_ORDER}
    work = Work(threads, features=features, state=state, **given)
    shape = tuple(work["features"].shape)
    if len(shape) != 2:
        raise _core.InputError(f"features has shape {list(shape)}; it must be [rows, features]")
    most = _core.most_rollout_steps()
    if not 1 <= steps <= most:
        raise _core.InputError(f"steps is {steps}; it must be from 1 to {most}")
    rows = shape[0]
    heads = tuple(work["heads"].shape)
    if len(heads) != 3:
        raise _core.InputError(f"heads has shape {list(heads)}; it must be [members, hidden, 2]")
    members, hidden, _ = heads
    mean, log_variance = (work.empty(members, rows, steps) for _ in range(2))
    last = work.empty(members, rows, hidden)
    every = work.empty(members, rows, steps, hidden) if states else None
    _core.forecast_rollout(
        [work[name] for name in _CORE_ORDER], work["features"], work["state"], feedback,
        mean, log_variance, last, every, *work.place,
    )  # fmt: skip
    return Rollout(
        work.result(mean),
        work.result(log_variance),
        work.result(last),
        None if every is None else work.result(every),
    )
