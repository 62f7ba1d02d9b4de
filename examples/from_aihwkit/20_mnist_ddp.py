"""AIHWKit's example 20: two processes train one model for programmed arrays.

torch's DistributedDataParallel averages the gradients, by gloo on CPUs. Digits take the place of
MNIST.
"""

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import pulsora as pl
from pulsora.training.data import batches, digits
from pulsora.training.run import accuracy

RANKS = 2


def train(rank: int, store: str) -> None:
    """Trains one of the models, which stay equal."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS
    )
    torch.set_num_threads(1)
    torch.manual_seed(1)
    config = pl.InferenceConfig(modifier="add_normal", modifier_std=0.03)
    made = nn.Sequential(
        pl.nn.AnalogLinear(64, 48, config=config, threads=1),
        nn.Sigmoid(),
        pl.nn.AnalogLinear(48, 32, config=config, threads=1),
        nn.Sigmoid(),
        pl.nn.AnalogLinear(32, 10, config=config, threads=1),
    )
    model = DistributedDataParallel(pl.distributed.prepare(made))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    data = digits()
    for epoch in range(8):
        for x, y in batches(data, batch=32, seed=0, epoch=epoch):
            mine = slice(rank * len(x) // RANKS, (rank + 1) * len(x) // RANKS)
            optimizer.zero_grad()
            out = model(torch.from_numpy(x[mine]))
            nn.functional.cross_entropy(out, torch.from_numpy(y[mine])).backward()
            optimizer.step()
        scheduler.step()
    if rank == 0:
        pl.drift(pl.program(made.eval()), "1 day")
        score = accuracy(made, torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))
        print(f"accuracy after a day: {score:.1%}")
        assert score > 0.85
    # A process that ends while a thread of gloo still frees a message is aborted.
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, args=(f"{folder}/store",), nprocs=RANKS)
