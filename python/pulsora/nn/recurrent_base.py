"""Base class of recurrent layers on analog tiles: matrices, time steps, packed sequences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from pulsora._internal.checks import require_boolean
from pulsora._internal.seeds import drawn_seed
from pulsora.nn.base import AnalogModule
from pulsora.nn.inputs import require_type
from pulsora.nn.linear import AnalogLinear
from pulsora.nn.options import are_blank, require_none, require_size, whole_signature
from pulsora.nn.recurrent_inputs import initial_state, require_steps
from pulsora.nn.tiled_module import TiledModule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from pulsora.config import TileConfig
    from pulsora.nn.recurrent_inputs import State

__all__ = ["AnalogRNNBase"]


class AnalogRNNBase(TiledModule):
    """Base class of recurrent layers: every weight matrix of torch's layer is an analog layer.

    The matrix that torch calls weight_ih_l0 is the layer `rnn.ih_l0`, an `AnalogLinear`, with its
    tiles and its `analog_weight`; likewise hh_l0, hr_l0 (of proj_size), ih_l0_reverse, and the
    matrices of further layers. `rnn.weight_ih_l0` is a copy of the weights; `set_weights` and
    `get_weights` take and return all weights by torch's names. Biases are parameters with torch's
    names.

    Each time step reads the tiles once, and is one sample of the pulsed update for each
    sequence: an optimiser of `pulsora.optim` takes all steps of a backward pass as one mini-batch.
    The inputs of all steps are read at once, with the same bits as one after another.

    Args:
        input_size: Size of the last dimension of x.
        hidden_size: Size of the hidden state.
        num_layers: Number of layers; each reads the outputs of the layer before.
        bias: Whether the matrices of inputs and hidden states have a bias each.
        batch_first: Whether x and y are [m, steps, features] instead of [steps, m, features].
        dropout: Probability of zeros in the outputs of all layers but the last, in training.
        bidirectional: Whether a second set of matrices reads the sequence backwards; its outputs
            follow the others in the last dimension.
        config: Configuration of the tiles.
        seed: Seed of all matrices; by default drawn from torch's generator.
        tile_id: Number of the first tile; the tiles of all matrices are numbered from there.
        digital_bias: Whether biases are torch parameters, or else one more column of cells each.
        **options: As for `AnalogLinear`.

    Raises:
        ValueError: for sizes that torch refuses, with torch's message.
        TypeError: for arguments that do not exist, or of a wrong type.
    """

    _torch: ClassVar[Any]
    settings: ClassVar[tuple[str, ...]] = (
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
    )
    """Names of the arguments that torch's layer has too, and of the attributes that hold them."""

    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__signature__ = whole_signature(cls, AnalogModule)  # type: ignore[attr-defined]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        config: TileConfig | None = None,
        seed: int | None = None,
        tile_id: int = 0,
        digital_bias: bool = True,
        **options: Any,
    ) -> None:
        if type(self) is AnalogRNNBase:
            raise TypeError("AnalogRNNBase is what recurrent layers share; make an AnalogLSTM")
        super().__init__()
        require_size(type(self).__name__, input_size)
        require_boolean("bias", bias)
        require_boolean("digital_bias", digital_bias)
        if "proj_size" in options and "proj_size" not in self.settings:
            raise TypeError(f"{type(self).__name__} has no argument 'proj_size'; AnalogLSTM has")
        # A layer of torch without memory checks the settings, and names the weights.
        twin = self._torch(
            input_size,
            hidden_size,
            num_layers,
            bias=bias,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            **{name: options.pop(name) for name in self.settings if name in options},
            device="meta",
        )
        for name in {*self.settings, "proj_size"}:
            setattr(self, name, getattr(twin, name))
        known = whole_signature(AnalogRNNBase, AnalogModule).parameters
        require_none(type(self).__name__, {n: options[n] for n in options if n not in known}, known)
        seed = drawn_seed() if seed is None else seed
        self._parts: tuple[str, ...] = tuple(
            name.removeprefix("weight_")
            for name, _ in twin.named_parameters()
            if name.startswith("weight_")
        )
        for part in self._parts:
            rows, columns = getattr(twin, f"weight_{part}").shape
            has_bias = bias and not part.startswith("hr")
            made = AnalogLinear(
                columns,
                rows,
                has_bias and not digital_bias,
                config,
                seed=seed,
                tile_id=tile_id,
                digital_bias=False,
                **options,
            )
            made.is_part = True
            tile_id += len(made.tiles)
            self.add_module(part, made)
            if has_bias and digital_bias:
                values = torch.empty(rows, device=made.tiles.device)
                self.register_parameter(f"bias_{part}", nn.Parameter(values))
        self._initialise(seed * 1_000_003 + tile_id)

    def _initialise(self, seed: int) -> None:
        """Draws weights and biases uniformly within +-1/sqrt(hidden_size), as torch does."""
        generator = torch.Generator().manual_seed(seed % 2**63)
        bound = 0.0 if are_blank() else 1.0 / math.sqrt(self.hidden_size)

        def uniform(shape: Sequence[int]) -> Tensor:
            return bound * (2.0 * torch.rand(shape, generator=generator, device="cpu") - 1.0)

        for part in self._parts:
            layer = self._layer(part)
            layer._write_matrix(uniform(layer.tiles.shape))  # noqa: SLF001 - of this package
        with torch.no_grad():
            for bias in self._parameters.values():
                if bias is not None:
                    bias.copy_(uniform(bias.shape))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws weights and biases anew, as torch's layer does; see `AnalogModule`."""
        self._initialise(drawn_seed())
        for part in self._parts:
            if (scaling := self._layer(part).out_scaling) is not None:
                scaling.fill_(1.0)

    def _layer(self, part: str) -> AnalogLinear:
        layer: AnalogLinear = self._modules[part]  # type: ignore[assignment]
        return layer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as torch's
        kind, _, part = name.partition("_")
        if kind in {"weight", "bias"} and part in self.__dict__.get("_parts", ()):
            layer = self._layer(part)
            if kind == "weight":
                weight: Any = layer.weight
                weight.part = part
                return weight
            if layer.analog_bias:
                return layer.get_weights()[1]
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401
        if (
            name.removeprefix("weight_") in self.__dict__.get("_parts", ())
            and name not in self._parts
        ):
            raise AttributeError(
                "the weights of an analog layer are in tiles: write them by set_weights(weights), "
                f"or share them by one.{name[7:]}.analog_weight = other.{name[7:]}.analog_weight"
            )
        super().__setattr__(name, value)

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """Copies of the weights, and the biases, by layer and direction as in torch's layer."""
        twin: Any = self.digital(device="meta")
        names = twin._all_weights  # noqa: SLF001 - in torch's order
        return [[getattr(self, name) for name in of_one] for of_one in names]

    def get_weights(self) -> dict[str, Tensor]:
        """Returns copies of all weights and biases, as `torch.nn.LSTM.state_dict()` does."""
        found: dict[str, Tensor] = {}
        for part in self._parts:
            weight, bias = self._layer(part).get_weights()
            own = self._own_bias(f"bias_{part}")
            bias = bias if own is None else own
            found[f"weight_{part}"] = weight
            if bias is not None:
                found[f"bias_{part}"] = bias.detach().clone()
        return found

    def set_weights(self, weights: dict[str, Tensor]) -> None:
        """Writes all weights and biases, named as in `torch.nn.LSTM.state_dict()`.

        Raises:
            ValueError: for missing or unknown names, and wrong shapes; nothing has changed then.
        """
        shapes = {name: tuple(values.shape) for name, values in self.get_weights().items()}
        if set(weights) != set(shapes):
            raise ValueError(f"weights has {sorted(weights)}: give {sorted(shapes)}")
        for name, shape in shapes.items():
            if tuple(weights[name].shape) != shape:
                given = list(weights[name].shape)
                raise ValueError(f"{name} has shape {given}; expected {list(shape)}")
        wanted, added = {}, {}
        for part in self._parts:
            layer, bias = self._layer(part), weights.get(f"bias_{part}")
            weight, in_cells = weights[f"weight_{part}"], bias if layer.analog_bias else None
            wanted[part] = layer._wanted(weight, in_cells)  # noqa: SLF001
            added[part] = self._converted_bias(f"bias_{part}", bias)
            layer._warn_of_clipping(wanted[part], stacklevel=4)  # noqa: SLF001
        for part, values in added.items():
            self._layer(part)._write(wanted[part], None)  # noqa: SLF001
            self._write_bias(f"bias_{part}", values)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        if f"{prefix}weight_ih_l0" in state_dict:
            error_msgs.append(
                f"{prefix}weight_ih_l0 is of a digital layer, but this one is analog: load the "
                "state into the digital model and convert that by pulsora.convert_to_analog, or "
                "call set_weights(digital.state_dict()) of the layer"
            )
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def digital(self, **options: Any) -> nn.Module:
        """Returns torch's layer with these settings and new weights; options: device, dtype."""
        settings = {name: getattr(self, name) for name in self.settings}
        made: nn.Module = self._torch(**settings, **options)
        return made

    def added_biases(self) -> list[nn.Parameter]:
        """Returns the biases, which are parameters of this module; see `AnalogModule`."""
        learned = {part for part in self._parts if self._layer(part).out_scaling is not None}
        return [
            bias
            for name, bias in self._parameters.items()
            if bias is not None and name.removeprefix("bias_") not in learned
        ]

    def flatten_parameters(self) -> None:
        """Does nothing; torch's layer has the method for kernels that tiles do not use."""

    def _product(self, part: str, x: Tensor, steps: int = 1) -> Tensor:
        y: Tensor = self._layer(part)(x, steps=steps, bias=self._own_bias(f"bias_{part}"))
        return y

    def _step(self, suffix: str, gates: Tensor, state: State) -> State:
        """Returns the state after a step (output first), from gates = W_ih x + b_ih."""
        raise NotImplementedError

    def _sizes(self) -> list[int]:
        """Returns the sizes of the tensors of a state."""
        return [self.proj_size or self.hidden_size]

    def _direction(
        self, suffix: str, x: Tensor, counts: Sequence[int], state: State
    ) -> tuple[Tensor, State]:
        """Runs a layer in one direction, counts[i] sequences in step i: outputs and last state."""
        gates = self._product(f"ih{suffix}", x, len(counts) if len(set(counts)) == 1 else 1)
        state = tuple(each.to(gates.dtype) for each in state)
        steps = torch.split(gates, list(counts))
        initial, outputs, ended = state, [], []
        if suffix.endswith("_reverse"):
            state = tuple(each[: counts[-1]] for each in initial)
            # Longer sequences start first; shorter sequences join later.
            for step in reversed(steps):
                if len(step) > len(state[0]):
                    state = tuple(
                        torch.cat([now, first[len(now) : len(step)]])
                        for now, first in zip(state, initial, strict=True)
                    )
                state = self._step(suffix, step, state)
                outputs.append(state[0])
            return torch.cat(outputs[::-1]), state
        for step in steps:
            if len(step) < len(state[0]):
                ended.append(tuple(each[len(step) :] for each in state))
                state = tuple(each[: len(step)] for each in state)
            state = self._step(suffix, step, state)
            outputs.append(state[0])
        last = tuple(torch.cat(parts) for parts in zip(state, *reversed(ended), strict=True))
        return torch.cat(outputs), last

    def _run(self, x: Tensor, counts: Sequence[int], state: State) -> tuple[Tensor, State]:
        """Returns outputs and last states [layers * directions, m, ...] for x of all steps."""
        directions = ["", "_reverse"] if self.bidirectional else [""]
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer > 0 and self.dropout > 0.0:
                x = nn.functional.dropout(x, self.dropout, self.training)
            outputs = []
            for direction in directions:
                first = tuple(each[len(last)] for each in state)
                y, end = self._direction(f"_l{layer}{direction}", x, counts, first)
                outputs.append(y)
                last.append(end)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
        return x, tuple(torch.stack(parts) for parts in zip(*last, strict=True))

    def forward(
        self, x: Tensor | PackedSequence, hx: Tensor | State | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor | State]:
        """Returns the outputs of all steps, and the states after the last step.

        Args:
            x: [steps, m, input_size], [m, steps, input_size] with batch_first, [steps, input_size]
                of one sequence, or a PackedSequence.
            hx: The states before the first step, [layers * directions, m, hidden_size], without m
                for one sequence; zeros by default. An LSTM has two, (h, c).

        Returns:
            The outputs in the form of x, and the states in the form of hx.
        """
        packed = x if isinstance(x, PackedSequence) else None
        data: Tensor = x.data if isinstance(x, PackedSequence) else x
        require_steps(
            data, self.input_size, batch_first=self.batch_first, is_packed=packed is not None
        )
        require_type(data, self._layer(self._parts[0]).digital_dtype)
        if packed is not None:
            self._layer(self._parts[0]).tiles.process_group.require_padded()
        is_one = packed is None and data.ndim == 2
        swaps = self.batch_first and packed is None and not is_one
        if packed is None:
            steps = data[:, None] if is_one else data.transpose(0, 1) if swaps else data
            counts = [steps.shape[1]] * len(steps)
            flat = steps.flatten(0, 1)
        else:
            counts, flat = packed.batch_sizes.tolist(), data
        count = self.num_layers * (1 + self.bidirectional)
        shapes = [(count, counts[0], size) for size in self._sizes()]
        state = initial_state(hx, shapes, flat, is_one=is_one)
        if packed is not None and packed.sorted_indices is not None and hx is not None:
            state = tuple(each[:, packed.sorted_indices] for each in state)
        y, last = self._run(flat, counts, state)
        if packed is not None:
            if packed.unsorted_indices is not None:
                last = tuple(each[:, packed.unsorted_indices] for each in last)
            outputs: Tensor | PackedSequence = PackedSequence(
                y, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
            )
        else:
            y = y.reshape(len(counts), counts[0], y.shape[1])
            outputs = y[:, 0] if is_one else y.transpose(0, 1) if swaps else y
            if is_one:
                last = tuple(each[:, 0] for each in last)
        return outputs, last if len(last) > 1 else last[0]

    def extra_repr(self) -> str:
        """Returns the text between the brackets of `print(layer)`."""
        names = self.settings[2:]
        settings = "".join(f", {name}={getattr(self, name)}" for name in names)
        return f"{self.input_size}, {self.hidden_size}{settings}"
