#!/usr/bin/env python3
"""Checks that object files built for one instruction set share no function with other object files.

The CPU kernels are compiled once per instruction set. A weak function in one of those object files
(an inline function or template instance that was not inlined) is merged by the linker with its
namesakes, and the copy that survives may be the one with AVX-512 code: the program then dies on an
older machine. Allowed are functions whose name carries the instruction set, such as
`pulsora::cpuKernels<pulsora::SoftBounds, (pulsora::Isa)2>()`.
"""

import argparse
import re
import subprocess
import sys

WEAK_FUNCTION = re.compile(r"^(?:[0-9a-fA-F]+)?\s+[Ww]\s+(?P<name>.+)$")


def shared_functions(nm: str, obj: str) -> list[str]:
    """Demangled names of defined weak functions in `obj` that do not name an instruction set."""
    listing = subprocess.run(
        [nm, "--demangle", "--defined-only", obj], check=True, capture_output=True, text=True
    ).stdout
    matches = (WEAK_FUNCTION.match(line) for line in listing.splitlines())
    return [m["name"] for m in matches if m and "pulsora::Isa" not in m["name"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nm", default="nm", help="the nm program")
    parser.add_argument("objects", nargs="+", help="object files of one instruction set each")
    args = parser.parse_args()
    leaks = [(obj, name) for obj in args.objects for name in shared_functions(args.nm, obj)]
    for obj, name in leaks:
        print(f"{obj}: {name}")
    if leaks:
        print(
            f"{len(leaks)} functions could be merged across instruction sets: mark them "
            "PULSORA_HD, make them members of a template over Isa, or do not call them from kernels"
        )
        return 1
    print(f"{len(args.objects)} object files share no functions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
