"""Several processes train one model, with the bits of one process.

Run `python 15_distributed.py`, or `torchrun --nproc-per-node 2 15_distributed.py`: both print the
same numbers. Every process has all tiles and its share of each batch.
"""

import hashlib
import os

import torch
from torch import distributed, nn

import pulsora as pl
from pulsora.training.data import batches, digits

if "RANK" in os.environ:  # torchrun started this
    distributed.init_process_group("gloo")
is_several = distributed.is_initialized()
rank = distributed.get_rank() if is_several else 0
ranks = distributed.get_world_size() if is_several else 1

torch.manual_seed(1)  # the same model on every rank
config = pl.LRTTConfig(rank=8, visible=pl.devices.EcRam(), transfer_every=20)
model = nn.Sequential(
    pl.nn.AnalogLinear(64, 32, config=config),
    nn.ReLU(),
    pl.nn.AnalogLinear(32, 10, config=pl.SingleConfig(device=pl.devices.EcRam())),
)
# Around it, DistributedDataParallel(...) if there were digital layers too.
pl.distributed.prepare(model, loss="sum", check_every=10)
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)

data = digits()
for x, y in batches(data, batch=32, seed=0, epoch=0):
    mine = slice(rank * len(x) // ranks, (rank + 1) * len(x) // ranks)  # unequal parts will do
    out = model(torch.from_numpy(x[mine]))
    loss = nn.functional.cross_entropy(out, torch.from_numpy(y[mine]), reduction="sum")
    optimizer.zero_grad()
    (loss / pl.distributed.rows(model)).backward()
    optimizer.step()

if rank == 0:
    with torch.no_grad():  # one rank may evaluate alone
        found = model(torch.from_numpy(data.test_x)).argmax(1)
    right = (found == torch.from_numpy(data.test_y)).float().mean()
    bits = hashlib.sha256(model[0].weight.numpy().tobytes()).hexdigest()[:16]
    print(
        f"accuracy {right:.3f}, weights {bits}, transfers {model[0].statistics()[0]['transfers']}"
    )
if is_several:
    distributed.barrier()  # gloo's threads have freed all messages
    distributed.destroy_process_group()
