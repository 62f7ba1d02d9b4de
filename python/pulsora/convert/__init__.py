"""Conversion of models of torch to analog layers and back, and a report on what is analog."""

from pulsora.convert.model import convert_to_analog, convert_to_digital
from pulsora.convert.report import ConversionReport, LayerReport, conversion_report

__all__ = [
    "ConversionReport",
    "LayerReport",
    "conversion_report",
    "convert_to_analog",
    "convert_to_digital",
]
