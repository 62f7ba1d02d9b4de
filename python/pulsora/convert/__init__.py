"""Conversion of models of torch to analog layers and back, and changes of all tiles of a model."""

from pulsora.convert.adapters import merge
from pulsora.convert.averages import average
from pulsora.convert.loading import LoadedWeights, load_weights
from pulsora.convert.memory import LayerMemory, ModelMemory, model_memory
from pulsora.convert.model import convert_to_analog, convert_to_digital
from pulsora.convert.periphery import with_io
from pulsora.convert.report import ConversionReport, LayerReport, conversion_report
from pulsora.convert.saving import load, save
from pulsora.convert.seeds import reseed

__all__ = [
    "ConversionReport",
    "LayerMemory",
    "LayerReport",
    "LoadedWeights",
    "ModelMemory",
    "average",
    "conversion_report",
    "convert_to_analog",
    "convert_to_digital",
    "load",
    "load_weights",
    "merge",
    "model_memory",
    "reseed",
    "save",
    "with_io",
]
