"""The number of CPU threads to use."""

from __future__ import annotations

import os

__all__ = ["chosen_threads"]


def chosen_threads(threads: int | None) -> int:
    """Returns `threads`; if None, the CPUs this process may run on, at most OMP_NUM_THREADS."""
    if threads is not None:
        return threads
    cores = len(os.sched_getaffinity(0))
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(int(wanted), cores) if wanted.isdecimal() and int(wanted) > 0 else cores
