"""Public names of `graphs`: a training step, or any captured work, as one CUDA graph."""

from pulsora.graphs.captured_graph import CapturedGraph
from pulsora.graphs.training_step import TrainingStep

__all__ = ["CapturedGraph", "TrainingStep"]
