"""PyTorch layers on analog tiles. Needs torch; the rest of Pulsora does not."""

from pulsora.nn.age_gate import AgeGate
from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.nn.autograd.factored_gradient import AnalogGradient
from pulsora.nn.base import AnalogModule
from pulsora.nn.conv import AnalogConv1d, AnalogConv2d, AnalogConv3d, AnalogConvNd
from pulsora.nn.gated_adapter import GatedAdapter
from pulsora.nn.gates import ConstantGate, Gate, LearnedGate, MixtureGate, TaskGate, select_task
from pulsora.nn.linear import AnalogLinear
from pulsora.nn.recurrent import AnalogGRU, AnalogLSTM, AnalogRNN
from pulsora.nn.recurrent_base import AnalogRNNBase
from pulsora.nn.rule_linear import RuleLinear
from pulsora.nn.tiles.checkpointing import replayed_reads
from pulsora.nn.tiles.tile_array import TileArray
from pulsora.nn.tiles.torch_memory import share_torch_memory

__all__ = [
    "AgeGate",
    "AnalogConv1d",
    "AnalogConv2d",
    "AnalogConv3d",
    "AnalogConvNd",
    "AnalogGRU",
    "AnalogGradient",
    "AnalogLSTM",
    "AnalogLinear",
    "AnalogModule",
    "AnalogParameter",
    "AnalogRNN",
    "AnalogRNNBase",
    "ConstantGate",
    "Gate",
    "GatedAdapter",
    "LearnedGate",
    "MixtureGate",
    "RuleLinear",
    "TaskGate",
    "TileArray",
    "replayed_reads",
    "select_task",
]

share_torch_memory()
