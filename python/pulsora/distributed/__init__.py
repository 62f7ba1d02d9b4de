"""Exact data-parallel training: several processes train one model, with the results of one.

    torchrun --nproc-per-node 4 train.py

and in it, after `torch.distributed.init_process_group()`,

    model = DistributedDataParallel(pulsora.distributed.prepare(model))

or `prepare(model)` alone, if the biases of its analog layers are the only digital parameters, or a
`pulsora.training_step.TrainingStep` trains it, which averages digital gradients itself.
Every process (rank) has all tiles and some rows of each global batch. It reads its rows with the
random numbers that they have in a read of the global batch. Pulses are made from all rows: by every
process, or by each process for some tiles, whose changes it then sends.
"""

from pulsora.distributed.prepare import batch, check, gathered, prepare, rows

__all__ = ["batch", "check", "gathered", "prepare", "rows"]
