"""The data sets: what is read, and what is said about files that are missing or damaged."""

from __future__ import annotations

import gzip
import re
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pulsora.training import data

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    for part, count, suffix in (("train", 12, ".gz"), ("t10k", 5, "")):
        images = rng.integers(0, 256, (count, 4, 3), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 3
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            content = idx_bytes(array)
            path = tmp_path / f"{part}-{name}-ubyte{suffix}"
            path.write_bytes(gzip.compress(content) if suffix else content)
    return tmp_path


def test_idx_folder_reads_plain_and_gzipped_files(folder: Path) -> None:
    loaded = data.idx_folder(folder, mean=0.25, std=0.5)
    assert loaded.train_x.shape == (12, 12)
    assert loaded.test_x.shape == (5, 12)
    assert (loaded.features, loaded.classes, loaded.shape) == (12, 3, (4, 3))
    raw = data.read_idx(folder / "t10k-images-idx3-ubyte").reshape(5, 12)
    np.testing.assert_allclose(loaded.test_x, (raw / 255.0 - 0.25) / 0.5, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(loaded.train_y, np.arange(12) % 3)


def test_idx_folder_normalises_by_the_training_pixels_by_default(folder: Path) -> None:
    loaded = data.idx_folder(folder)
    assert abs(float(loaded.train_x.mean())) < 1e-6
    assert abs(float(loaded.train_x.std()) - 1.0) < 1e-5


def test_missing_file_is_named(folder: Path) -> None:
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(data.DataError, match="no file t10k-labels-idx1-ubyte"):
        data.idx_folder(folder)


@pytest.mark.parametrize(
    ("keep", "message"),
    [(2, "not an IDX file"), (9, "truncated within the header"), (40, "24 bytes of data where")],
)
def test_truncated_file_is_named(folder: Path, keep: int, message: str) -> None:
    path = folder / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(data.DataError, match=f"{re.escape(str(path))}: {message}"):
        data.idx_folder(folder)


def test_truncated_gzip_file_is_named(folder: Path) -> None:
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(data.DataError, match="cannot be read"):
        data.idx_folder(folder)


def test_labels_of_another_set_are_refused(folder: Path) -> None:
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(7, np.uint8)))
    with pytest.raises(data.DataError, match="does not fit the 5 images"):
        data.idx_folder(folder)


def test_images_of_another_shape_are_refused(folder: Path) -> None:
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx_bytes(np.zeros((5, 3, 4), np.uint8)))
    with pytest.raises(data.DataError, match=r"have 4 x 3 pixels and test images 3 x 4"):
        data.idx_folder(folder)


def test_unknown_source_is_refused() -> None:
    with pytest.raises(data.DataError, match="neither 'digits' nor a folder"):
        data.load("no/such/folder")


def test_digits_are_split_and_normalised() -> None:
    digits = data.digits()
    assert digits.train_x.shape == (1348, 64)
    assert digits.test_x.shape == (449, 64)
    assert digits.shape == (8, 8)
    assert abs(float(digits.train_x.mean())) < 1e-5
    assert set(np.unique(digits.test_y)) == set(range(10))


def test_digits_refuse_an_empty_part() -> None:
    with pytest.raises(data.DataError, match=r"test_share = 1\.5"):
        data.digits(test_share=1.5)


def test_batches_depend_on_seed_and_epoch_alone() -> None:
    digits = data.digits()
    first = [y.tolist() for _, y in data.batches(digits, 100, seed=3, epoch=0)]
    again = [y.tolist() for _, y in data.batches(digits, 100, seed=3, epoch=0)]
    other = [y.tolist() for _, y in data.batches(digits, 100, seed=3, epoch=1)]
    assert first == again
    assert first != other
    assert [len(y) for y in first] == [100] * 13


def test_batches_may_keep_the_rest() -> None:
    sizes = [len(y) for _, y in data.batches(data.digits(), 100, 0, 0, drop_last=False)]
    assert sizes == [100] * 13 + [48]


def test_batches_refuse_a_batch_larger_than_the_set() -> None:
    with pytest.raises(data.DataError, match="batch = 5000"):
        next(data.batches(data.digits(), 5000, 0, 0))
