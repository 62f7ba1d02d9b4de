"""A whole training step as one CUDA graph: the public name of `TrainingStep`, which is in `graphs/`."""

from pulsora.graphs.training_step import TrainingStep

__all__ = ["TrainingStep"]
