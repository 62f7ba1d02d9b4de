"""Trackers: writers of one stream of records to TensorBoard, MLflow, Weights & Biases, and files.

`pulsora train --track tensorboard` uses them; `pulsora.trackers.lightning` and
`pulsora.trackers.hugging_face` have callbacks that do so in a Trainer.
"""
