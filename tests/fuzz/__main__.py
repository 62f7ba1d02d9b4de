"""Tries random and hostile inputs, and reports those that break what must hold.

python -m tests.fuzz --seconds 600            all targets, that long in all
python -m tests.fuzz --target states --count 100000
python -m tests.fuzz --target states --seed 17    one input, in this process, with all that it does

With --build build/asan (`cmake --preset asan`) sanitizers watch, and the C++ programs that
libFuzzer drives are targets too; otherwise the package is the one that Python finds. Exit status 1
says that something was found.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz import TARGETS
from tests.fuzz.build import Build
from tests.fuzz.parent import fuzz, reproduce
from tests.fuzz.programs import PROGRAMS, fuzz_program

if TYPE_CHECKING:
    from tests.fuzz.parent import Outcome

MOST = 1 << 62


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--target", action="append", help="all of them if not given")
    parser.add_argument("--seconds", type=float, help="in all; shared out evenly")
    parser.add_argument("--count", type=int, help="inputs of each target")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one input")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("--build", type=Path, help="a build folder")
    parser.add_argument("--seed", type=int, help="try this input alone")
    given = parser.parse_args()
    build = Build(given.build)
    targets: list[str] = given.target or [*TARGETS, *(PROGRAMS if build.has_programs else ())]
    if given.seed is not None:
        return reproduce(build, targets[0], given.seed)
    if given.seconds is None and given.count is None:
        parser.error("say how long: --seconds or --count")
    share = (given.seconds or MOST) * given.jobs / len(targets)

    def work(target: str) -> Outcome:
        common = {"first": given.first, "seconds": share, "limit": given.limit}
        if target in PROGRAMS:
            return fuzz_program(build, target, **common)
        return fuzz(build, target, count=given.count or MOST, **common)

    again = "python -m tests.fuzz" + (f" --build {given.build}" if given.build else "")
    found = False
    with ThreadPoolExecutor(given.jobs) as pool:
        for done in as_completed(pool.submit(work, target) for target in targets):
            report(done.result(), again)
            found = found or bool(done.result().findings)
    return int(found)


def report(outcome: Outcome, again: str) -> None:
    rate = outcome.inputs / max(outcome.seconds, 1e-9)
    kinds = outcome.by_kind()
    print(
        f"{outcome.target}: {outcome.inputs} inputs, {rate:.0f} per second, "
        f"{len(outcome.findings)} findings of {len(kinds)} kinds",
        flush=True,
    )
    for kind, findings in kinds.items():
        first = findings[0]
        print(f"\n--- {outcome.target}: {len(findings)} times: {kind}")
        print(f"{again} --target {outcome.target} --seed {first['seed']}")
        print(first["report"], flush=True)


if __name__ == "__main__":
    sys.exit(main())
