"""Recurrent layers on analog tiles: RNN, LSTM and GRU, with torch's arguments and gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora.nn.recurrent_base import AnalogRNNBase

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.nn.recurrent_inputs import State

__all__ = ["AnalogGRU", "AnalogLSTM", "AnalogRNN"]


class AnalogRNN(AnalogRNNBase):
    """`torch.nn.RNN`'s twin: h <- tanh(W_ih x + b_ih + W_hh h + b_hh). See `AnalogRNNBase`.

    `nonlinearity`, 'tanh' or 'relu', comes after num_layers, as in torch.
    """

    _torch = nn.RNN
    settings = (*AnalogRNNBase.settings, "nonlinearity")
    nonlinearity: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **options: Any,
    ) -> None:
        options["nonlinearity"] = nonlinearity
        super().__init__(input_size, hidden_size, num_layers, *args, **options)

    def _step(self, suffix: str, gates: Tensor, state: State) -> State:
        total = gates + self._product(f"hh{suffix}", state[0])
        return (torch.relu(total) if self.nonlinearity == "relu" else torch.tanh(total),)


class AnalogLSTM(AnalogRNNBase):
    """`torch.nn.LSTM`'s twin. See `AnalogRNNBase`.

    The rows of the matrices belong to the gates i, f, g, o, in this order:
    c <- sigmoid(f) c + sigmoid(i) tanh(g), h <- sigmoid(o) tanh(c). With proj_size, h is multiplied
    by one more analog matrix, hr_l0.
    """

    _torch = nn.LSTM
    settings = (*AnalogRNNBase.settings, "proj_size")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size=proj_size,
            **options,
        )

    def _sizes(self) -> list[int]:
        return [*super()._sizes(), self.hidden_size]

    def _step(self, suffix: str, gates: Tensor, state: State) -> State:
        h, c = state
        h, c = _lstm_cell(gates, self._product(f"hh{suffix}", h), c)
        return (self._product(f"hr{suffix}", h) if self.proj_size else h), c


class AnalogGRU(AnalogRNNBase):
    """`torch.nn.GRU`'s twin. See `AnalogRNNBase`.

    The rows of the matrices belong to the gates r, z, n, in this order:
    n = tanh(n_x + sigmoid(r) n_h), h <- n + sigmoid(z) (h - n).
    """

    _torch = nn.GRU

    def _step(self, suffix: str, gates: Tensor, state: State) -> State:
        (h,) = state
        return (_gru_cell(gates, self._product(f"hh{suffix}", h), h),)


def _has_kernels(tensor: Tensor) -> bool:
    """Whether torch has a kernel for a whole cell (LSTMCell, GRUCell) instead of a dozen launches.

    torch has none for the CPU, and torch.compile makes its own.
    """
    return tensor.is_cuda and not torch.compiler.is_compiling()


def _lstm_cell(of_x: Tensor, of_h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Returns h and c after a step, from the gates' sums over inputs and over h."""
    if _has_kernels(of_x):
        h, c, _ = torch.ops.aten._thnn_fused_lstm_cell.default(of_x, of_h, c)  # noqa: SLF001
        return h, c
    i, f, g, o = (of_x + of_h).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_cell(of_x: Tensor, of_h: Tensor, h: Tensor) -> Tensor:
    """Returns h after a step, from the gates' sums over inputs and over h."""
    if _has_kernels(of_x):
        h, _ = torch.ops.aten._thnn_fused_gru_cell.default(of_x, of_h, h)  # noqa: SLF001
        return h
    r_x, z_x, n_x = of_x.chunk(3, 1)
    r_h, z_h, n_h = of_h.chunk(3, 1)
    n = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
    return n + torch.sigmoid(z_x + z_h) * (h - n)
