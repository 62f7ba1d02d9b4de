"""The C++ programs that libFuzzer drives: what they start from, and what came of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pulsora as pl
from pulsora import state as states
from tests.fuzz import some
from tests.fuzz.draws import Draws
from tests.fuzz.parent import Outcome
from tests.fuzz.states import base

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = ("json_text", "config_text", "state_bytes")
EXAMPLES = 60


def fuzz_program(folder: Path, name: str, *, seconds: float, first: int, work: Path) -> Outcome:
    """Runs the program `name` of a build folder for some time.

    Args:
        folder: Where the program is.
        name: One of PROGRAMS.
        seconds: How long.
        first: The seed of libFuzzer, which decides what it tries.
        work: Where what it found stays.
    """
    corpus = work / f"{name}_corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, example in enumerate(_examples(name)):
        (corpus / f"example_{number}").write_bytes(example)
    words = work / "words"
    words.write_text("".join(f'"{word}"\n' for word in _words()), encoding="ascii")
    command = [folder / f"fuzz_{name}", f"-max_total_time={max(1, int(seconds))}"]
    command += [f"-seed={first + 1}", f"-dict={words}", "-timeout=60", "-print_final_stats=1"]
    command += ["-rss_limit_mb=4096", f"-artifact_prefix={work}/{name}_", "-verbosity=0", corpus]
    # An allocation that is too large is an answer of the library, not a fault.
    options = "allocator_may_return_null=1:detect_stack_use_after_return=1"
    environment = {**os.environ, "ASAN_OPTIONS": options, "LD_PRELOAD": ""}
    outcome = Outcome(name)
    start = time.monotonic()
    done = subprocess.run(  # noqa: S603
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    outcome.seconds = time.monotonic() - start
    said = done.stdout.decode(errors="replace")
    tried = re.search(r"number_of_executed_units: *(\d+)", said)
    outcome.inputs = int(tried.group(1)) if tried else 0
    if done.returncode != 0:
        outcome.add({"seed": first, "kind": "the program ended", "report": said[-12000:]})
    return outcome


def _examples(name: str) -> Iterator[bytes]:
    for number in range(EXAMPLES):
        draws = Draws(name, number)
        if name == "state_bytes":
            config = some.config(draws, "lrtt")
            # The tile of the program: only its states get further than the first comparison.
            plain = pl.LRTTConfig(rank=2) if number % 2 else config.replace(rank=2, rank_chunk=-1, rank_offset=0)  # fmt: skip
            tile = pl.Tile(3, 4, plain, seed=7, threads=1)
            yield states.dumps(tile.state())
        else:
            yield json.dumps(some.config(draws, value_of=some.extreme).to_dict()).encode()
    if name == "json_text":
        for number in range(10):
            yield json.dumps(base(number).values).encode()


def _words() -> Iterator[str]:
    """Names of parameters and choices, and pieces of JSON."""
    tables = [*some.SCHEMA["structs"].values()]
    tables += [entry["fields"] for entry in some.SCHEMA["devices"].values()]
    tables += [entry["fields"] for entry in some.SCHEMA["compounds"].values()]
    names = {field["name"] for table in tables for field in table}
    names |= {choice for table in tables for field in table for choice in field["choices"]}
    names |= {*some.MODELS, *some.KINDS, "kind", "model", "weights", "visible.weights"}
    yield from sorted(names)
    yield from ("true", "false", "null", "1e38", "-1e38", "1e-45", "NaN", "\\\\u0000", "65536", "9223372036854775807", "F32", "F16", "data_offsets", "shape", "dtype", "__metadata__")  # fmt: skip
