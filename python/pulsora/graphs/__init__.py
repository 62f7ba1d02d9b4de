"""CUDA graphs of mini-batches and of whole training steps."""
