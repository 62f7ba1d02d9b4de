"""A rank that waits for another one, which never answers, or ends early: for test_distributed.py.

Arguments: a folder, the group's limit in seconds, "sleeps" or "ends".
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch
from torch import distributed as dist

from distributed_models import mlp
from pulsora import distributed


def main() -> int:
    folder, seconds = sys.argv[1], float(sys.argv[2])
    child = os.fork()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=int(child == 0),
        world_size=2,
        timeout=timedelta(seconds=seconds),
    )
    model = distributed.prepare(mlp())
    if child == 0:
        if sys.argv[3] == "sleeps":
            time.sleep(10 * seconds)
        model(torch.zeros(2, 12))
        os._exit(0)
    begun = time.monotonic()
    try:
        for _ in range(2):
            model(torch.zeros(2, 12))
    except RuntimeError as error:
        said = str(error).replace("\n", " ")
        sys.stdout.write(f"{time.monotonic() - begun} {said}\n")
    os.kill(child, 9)
    os.waitpid(child, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
