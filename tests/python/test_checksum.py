"""The checksum of saved states: changed bytes are found, and intended changes can be signed."""

from __future__ import annotations

import lzma
import random
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import CONFIGS, make_tile
from pulsora import state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _same(first: pl.State, second: pl.State) -> bool:
    return (
        first.values == second.values
        and first.tensors.keys() == second.tensors.keys()
        and all(
            (array.dtype, array.shape, array.tobytes())
            == (other.dtype, other.shape, other.tobytes())
            for array, other in zip(first.tensors.values(), second.tensors.values(), strict=True)
        )
    )


def _is_found(read: Callable[[], pl.State], saved: pl.State) -> bool:
    """Whether a change is found; otherwise it has no effect, such as another kind of space."""
    try:
        changed = read()
    except pl.StateError:
        return True
    assert _same(changed, saved)
    return False


@pytest.mark.parametrize("seed", [0, 1])
def test_every_changed_byte_of_a_file_is_found(config: pl.TileConfig, seed: int) -> None:
    saved = pl.Tile(2, 3, _small(config), seed=seed, threads=1).state()
    data = state.dumps(saved)
    rng = random.Random(seed)  # noqa: S311
    found = 0
    for at in range(len(data)):
        mutant = bytearray(data)
        mutant[at] ^= rng.randint(1, 255)
        found += _is_found(lambda: state.loads(bytes(mutant)), saved)  # noqa: B023 - at once
    assert found > 0.99 * len(data)


def test_every_changed_byte_of_tensors_alone_is_found(config: pl.TileConfig) -> None:
    saved = pl.Tile(2, 3, _small(config), threads=1).state()
    tensors = state.to_tensors(saved)
    rng = random.Random(3)  # noqa: S311
    found = changes = 0
    for name, array in tensors.items():
        for at in range(array.nbytes):
            data = bytearray(array.tobytes())
            data[at] ^= rng.randint(1, 255)
            mutant = {**tensors, name: np.frombuffer(data, array.dtype).reshape(array.shape)}
            found += _is_found(
                lambda: pl.Tile.from_state(
                    state.from_tensors(mutant),  # noqa: B023
                    threads=1,
                ).state(),
                saved,
            )
            changes += 1
    assert found > 0.99 * changes


def _small(config: pl.TileConfig) -> pl.TileConfig:
    if isinstance(config, pl.LRTTConfig):
        config.rank = 1
    return config


def test_a_change_that_is_meant_is_signed(tmp_path: Path) -> None:
    tile = make_tile(CONFIGS["single"]())
    saved = tile.state()
    saved.tensors["weights"][2, 3] = 0.25
    for use in (
        tile.load_state,
        pl.Tile.from_state,
        state.dumps,
        lambda changed: state.save(changed, tmp_path / "never"),
        lambda changed: tile.load_state(state.from_tensors(state.to_tensors(changed))),
    ):
        with pytest.raises(pl.StateError, match=r"State\.signed\(\)"):
            use(saved)
    assert not list(tmp_path.iterdir())
    signed = saved.signed()
    state.save(signed, tmp_path / "tile")
    for other in (pl.Tile.from_state(signed), pl.Tile.load(tmp_path / "tile")):
        assert other.weights[2, 3] == 0.25


def _number(value: int) -> bytes:
    return struct.pack("<q", value)


def _text(value: str) -> bytes:
    return _number(len(value.encode())) + value.encode()


def _list(values: list[Any]) -> bytes:
    return _number(len(values)) + b"".join(map(_content, values))


def _map(values: dict[str, Any]) -> bytes:
    entries = sorted(values.items())
    return _number(len(entries)) + b"".join(_text(k) + _content(v) for k, v in entries)


KINDS: dict[type, tuple[bytes, Callable[[Any], bytes]]] = {
    type(None): (b"n", lambda _: b""),
    bool: (b"b", _number),
    int: (b"i", _number),
    float: (b"r", lambda value: struct.pack("<d", value)),
    str: (b"t", _text),
    list: (b"l", _list),
    dict: (b"m", _map),
}


def _content(value: Any) -> bytes:  # noqa: ANN401
    letter, encode = KINDS[type(value)]
    return letter + encode(value)


def test_the_checksum_is_what_the_core_says_it_is() -> None:
    """Made once more from the words in storage/state.h; the CRC is that of another library."""
    saved = make_tile(CONFIGS["lrtt"]()).state()
    rest = dict(saved.values)
    checksum = rest.pop("checksum")
    whole = _content(rest) + _number(len(saved.tensors))
    for name, array in sorted(saved.tensors.items()):
        whole += _text(name) + _text({"float32": "F32", "float16": "F16"}[str(array.dtype)])
        whole += b"".join(map(_number, (array.ndim, *array.shape, array.nbytes))) + array.tobytes()
    assert int(checksum, 16) == _crc64(whole)


def _crc64(data: bytes) -> int:
    """From an .xz file of one block: its check stands behind the data, before index and footer."""
    file = lzma.compress(data, lzma.FORMAT_XZ, lzma.CHECK_CRC64)
    index = 4 * (int.from_bytes(file[-8:-4], "little") + 1)
    return int.from_bytes(file[-12 - index - 8 : -12 - index], "little")
