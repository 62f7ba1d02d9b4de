"""Writes what the programs of libFuzzer start from: sound inputs, and words that belong into them.

python -m tests.fuzz.examples FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pulsora as pl
from pulsora import state as states
from tests.fuzz import generators
from tests.fuzz.random_source import Draws

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = 40
JSON_WORDS = (
    "true", "false", "null", "1e38", "-1e38", "1e-45", "NaN", "65536", "9223372036854775807", "F32",
    "F16", "data_offsets", "shape", "dtype", "__metadata__",
)  # fmt: skip


def _config_text() -> Iterator[bytes]:
    for number in range(EXAMPLES):
        made = generators.config(Draws("config_text", number), value_of=generators.extreme)
        yield json.dumps(made.to_dict()).encode()


def _states() -> Iterator[states.State]:
    """States of the tile that state_values.cpp makes: others fail its first comparison."""
    for number in range(EXAMPLES):
        tile = pl.Tile(3, 4, pl.LRTTConfig(rank=2), seed=7, threads=1)
        draws = Draws("state_bytes", number)
        for _ in range(number % 5):
            tile.update(draws.normal(7, 4), draws.normal(7, 3), 0.1)
        yield tile.state()


def _state_bytes() -> Iterator[bytes]:
    return (states.dumps(state) for state in _states())


def _state_values() -> Iterator[bytes]:
    return (json.dumps(state.values).encode() for state in _states())


def _json_text() -> Iterator[bytes]:
    yield from (b'"\\ud83d\\ude00\\n"', b"[1, -0.0, 1e-300, [], {}]", b"[[[[[[[[]]]]]]]]")
    yield from _state_values()


def _words() -> set[str]:
    tables = [*generators.SCHEMA["structs"].values()]
    tables += [entry["fields"] for entry in generators.SCHEMA["devices"].values()]
    tables += [entry["fields"] for entry in generators.SCHEMA["compounds"].values()]
    fields = [field for table in tables for field in table]
    names = {field["name"] for field in fields} | {c for field in fields for c in field["choices"]}
    return names | {*generators.MODELS, *generators.KINDS, *JSON_WORDS, "kind", "model"}


def main() -> None:
    folder = Path(sys.argv[1])
    for name, examples in {
        "config_text": _config_text,
        "state_bytes": _state_bytes,
        "state_values": _state_values,
        "json_text": _json_text,
    }.items():
        (folder / name).mkdir()
        for number, example in enumerate(examples()):
            (folder / name / f"example_{number}").write_bytes(example)
    words = "".join(f'"{word}"\n' for word in sorted(_words()))
    (folder / "words").write_text(words, encoding="ascii")


if __name__ == "__main__":
    main()
