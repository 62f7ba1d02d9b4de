"""An ensemble of gated recurrent units that continues rows of features over steps."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora import state
from pulsora.forecast.arrays import host

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import NDArray

    Array = Any

__all__ = ["Ensemble"]


_NEEDED = 7  # attributes of every ensemble
_PAIRS = (("state_gain", "state_shift"), ("projection", "projection_bias"))
_LARGEST_HALF = 65504.0


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
        state_gain: [E, H], with state_shift, for a layer normalisation of the state that heads and
            projection read: (h - mean) / sqrt(variance + 1e-5) gain + shift, over the units.
        state_shift: [E, H].
        projection: P [E, H, W], with projection_bias, from the state to a predicted state of any
            width W.
        projection_bias: [E, W].
    """

    encoder: Array
    encoder_bias: Array
    input: Array
    recurrent: Array
    bias: Array
    heads: Array
    log_variance_bias: Array
    candidate_bias: Array | None = None
    state_gain: Array | None = None
    state_shift: Array | None = None
    projection: Array | None = None
    projection_bias: Array | None = None

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The weights by name, in the order above, as far as there are any."""
        return {name: host(name, array) for name, array in self._given().items()}

    def _given(self) -> dict[str, Array]:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in given.items() if array is not None}

    def to(self, device: Any) -> Ensemble:  # noqa: ANN401 - torch is optional
        """Copies the ensemble to torch tensors on a device such as "cuda", for rollouts there."""
        import torch  # noqa: PLC0415 - optional

        given = {name: torch.as_tensor(array) for name, array in self._given().items()}
        return Ensemble(**{name: array.float().to(device) for name, array in given.items()})

    def to_half(self) -> Ensemble:
        """Rounds the weights to float16, for `rollout(..., precision="float16")`.

        Raises:
            ValueError: for weights beyond 65504.
        """
        made: dict[str, Array] = {}
        for name, array in self._given().items():
            largest = float(abs(array).max()) if 0 not in array.shape else 0.0
            if largest > _LARGEST_HALF:
                raise ValueError(
                    f"{name} has values up to {largest:.3g}; float16 ends at {_LARGEST_HALF:.0f}"
                )
            made[name] = array.half() if hasattr(array, "half") else array.astype(np.float16)
        return Ensemble(**made)

    def members(self, first: int, last: int) -> Ensemble:
        """The members from number `first` to number `last` - 1."""
        return Ensemble(**{name: array[first:last] for name, array in self._given().items()})

    def spread(self, devices: Sequence[Any]) -> list[Ensemble]:
        """Shares the members out over devices such as "cuda:0", for `rollout_on`.

        A device that is named more than once gets as many parts, which run side by side in streams
        of their own.

        Raises:
            ValueError: for no device, or for more than there are members.
        """
        count = self.encoder.shape[0]
        if not 1 <= len(devices) <= count:
            raise ValueError(f"devices has {len(devices)}; give from 1 to {count}, one a member")
        ends = [count * number // len(devices) for number in range(len(devices) + 1)]
        return [
            self.members(first, last).to(device)
            for first, last, device in zip(ends[:-1], ends[1:], devices, strict=True)
        ]

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
        missing = [name for name in names[:_NEEDED] if name not in arrays]
        missing += [
            name
            for pair in _PAIRS
            for name in pair
            if name not in arrays and not arrays.keys().isdisjoint(pair)
        ]
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
        width = arrays["projection_bias"].shape[-1] if "projection_bias" in arrays else 0
        shapes = {
            "encoder": (members, features, encoded),
            "encoder_bias": (members, encoded),
            "input": (members, encoded, 3 * hidden),
            "recurrent": (members, hidden, 3 * hidden),
            "bias": (members, 3 * hidden),
            "heads": (members, hidden, 2),
            "log_variance_bias": (members,),
            "candidate_bias": (members, hidden),
            "state_gain": (members, hidden),
            "state_shift": (members, hidden),
            "projection": (members, hidden, width),
            "projection_bias": (members, width),
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
