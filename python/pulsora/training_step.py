"""The public name of `graphs.training_step`: a whole training step as one CUDA graph."""

from pulsora.graphs.training_step import TrainingStep

__all__ = ["TrainingStep"]
