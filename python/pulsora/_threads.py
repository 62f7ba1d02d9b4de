"""How many CPU threads there are to use."""

from __future__ import annotations

import os

__all__ = ["default_threads"]


def default_threads() -> int:
    """CPU threads where nobody names a number: OMP_NUM_THREADS, at most all this process may run on."""
    cores = len(os.sched_getaffinity(0))
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(int(wanted), cores) if wanted.isdecimal() and int(wanted) > 0 else cores
