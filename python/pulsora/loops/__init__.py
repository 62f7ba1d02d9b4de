"""Recorded training steps in loops of other packages: Lightning, and Hugging Face's Trainer."""
