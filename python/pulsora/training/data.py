"""Small data sets for experiments: scikit-learn's digits, folders of IDX files, and text files.

IDX is the format of MNIST, Fashion-MNIST, KMNIST and EMNIST. Nothing is downloaded.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Images = NDArray[np.float32]
    Labels = NDArray[np.int64]
    Samples = Images | Labels

__all__ = [
    "DataError",
    "Dataset",
    "batches",
    "digits",
    "idx_folder",
    "load",
    "read_idx",
    "require_batch",
    "shuffled",
    "text_file",
]

_PIECE = 32  # characters per piece of text
_MOST_LETTERS = 256

_IDX_TYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype(">u1"),
    0x09: np.dtype(">i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}


class DataError(ValueError):
    """A data set is missing, incomplete or malformed."""


@dataclass(frozen=True)
class Dataset:
    """Images as rows of numbers with labels, or pieces of text with the characters that follow.

    Attributes:
        name: Name of the set in reports.
        train_x: Training images, [n, pixels], float32, normalised; or the numbers of characters,
            [n, characters], int64.
        train_y: Classes of the training images, [n], int64 from 0; or for each character the next
            one, [n, characters].
        test_x: Test images, or pieces of text.
        test_y: Classes of the test images, or characters.
        classes: Number of classes, or of different characters.
        shape: Rows and columns of an image, or the number of characters of a piece of text; empty
            if unknown.
    """

    name: str
    train_x: Samples
    train_y: Labels
    test_x: Samples
    test_y: Labels
    classes: int
    shape: tuple[int, ...] = ()

    @property
    def features(self) -> int:
        """Number of pixels of one image, or of characters of a piece of text."""
        return int(self.train_x.shape[1])

    @property
    def is_text(self) -> bool:
        """Whether the set holds text."""
        return len(self.shape) == 1


def load(source: str | Path) -> Dataset:
    """The data set of a command line: ``digits``, a folder of IDX files, or a text file.

    Raises:
        DataError: if `source` is none of these, or damaged.
    """
    if str(source) == "digits":
        return digits()
    if Path(source).is_file():
        return text_file(source)
    if not Path(source).is_dir():
        raise DataError(
            f"data = {str(source)!r} is neither 'digits' nor a folder nor a file; give the path "
            "of a folder with the four IDX files of an MNIST-like data set, or of a text file"
        )
    return idx_folder(source)


def digits(test_share: float = 0.25, seed: int = 0) -> Dataset:
    """1797 handwritten digits of 8x8 pixels, which ship with scikit-learn.

    Args:
        test_share: Share of the images that is held out for testing, between 0 and 1.
        seed: Seed of the split.

    Raises:
        DataError: if `test_share` leaves a part empty, or scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise DataError(
            "data = 'digits' needs scikit-learn: pip install 'pulsora[demo]'"
        ) from error
    bunch = load_digits()
    x = np.asarray(bunch.data, dtype=np.float32)
    y = np.asarray(bunch.target, dtype=np.int64)
    tests = round(test_share * len(x))
    if not 0 < tests < len(x):
        raise DataError(f"test_share = {test_share} leaves no images to train or to test on")
    order = np.random.default_rng(seed).permutation(len(x))
    test, train = order[:tests], order[tests:]
    mean, std = x[train].mean(), x[train].std()
    x = (x - mean) / std
    return Dataset("digits", x[train], y[train], x[test], y[test], 10, bunch.images.shape[1:])


def idx_folder(folder: str | Path, mean: float | None = None, std: float | None = None) -> Dataset:
    """A folder with an MNIST-like data set: four IDX files, plain or gzipped.

    The files are recognised by the usual names: ``train-images-idx3-ubyte``,
    ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte``
    (``test-...`` will do for ``t10k-...``), each with or without ``.gz``.

    Args:
        folder: Folder of the files.
        mean: Subtracted from the pixels, which are first scaled to 0..1; by default the mean of
            the training pixels.
        std: Divisor of the difference; by default the standard deviation of the training pixels.

    Raises:
        DataError: if a file is missing, truncated, or does not fit the others.
    """
    folder = Path(folder)
    train_x, train_y, shape = _images_and_labels(folder, ("train",))
    test_x, test_y, test_shape = _images_and_labels(folder, ("t10k", "test"))
    if shape != test_shape:
        raise DataError(
            f"{folder}: training images have {_times(shape)} pixels and test images "
            f"{_times(test_shape)}; the files belong to different data sets"
        )
    mean = float(train_x.mean(dtype=np.float64)) if mean is None else mean
    std = float(train_x.std(dtype=np.float64)) if std is None else std
    if std <= 0.0:
        raise DataError(f"{folder}: std = {std}; pixels can only be divided by a positive number")
    for pixels in (train_x, test_x):
        np.subtract(pixels, np.float32(mean), out=pixels)
        np.divide(pixels, np.float32(std), out=pixels)
    classes = int(max(train_y.max(), test_y.max())) + 1
    return Dataset(
        folder.name, train_x, train_y, test_x, test_y, classes, shape if len(shape) == 2 else ()
    )


def text_file(path: str | Path, length: int = _PIECE) -> Dataset:
    """A text as pieces of equal length, in which the next characters are to be predicted.

    The last tenth of the text is the test part.

    Args:
        path: A file of text in UTF-8. Its 256 most frequent characters get numbers, in the order of
            their codes; all others share the last number.
        length: Characters of a piece, from 1. The next piece begins where one ends.

    Raises:
        DataError: if the file cannot be read, is not UTF-8, or is too short.
    """
    try:
        text = Path(path).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"data = '{path}' cannot be read as text ({error}); give a file of text "
            "in UTF-8, or a folder of IDX files"
        ) from error
    if length < 1 or len(text) < 10 * (length + 1):
        raise DataError(
            f"data = '{path}' has {len(text)} characters; pieces of length = {length} need at "
            f"least {10 * (max(length, 1) + 1)}, of which a tenth is for testing"
        )
    codes, inverse, counts = np.unique(
        np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True, return_counts=True
    )
    known = np.sort(np.argsort(-counts, kind="stable")[:_MOST_LETTERS])
    number = np.full(len(codes), len(known), np.int64)
    number[known] = np.arange(len(known))
    numbers = number[inverse]
    split = len(text) * 9 // 10
    train_x, train_y = _pieces(numbers[:split], length)
    test_x, test_y = _pieces(numbers[split:], length)
    classes = int(numbers.max()) + 1
    return Dataset(Path(path).name, train_x, train_y, test_x, test_y, classes, (length,))


def _pieces(numbers: Labels, length: int) -> tuple[Labels, Labels]:
    """Pieces of text, and for each character the next one."""
    end = (len(numbers) - 1) // length * length
    return numbers[:end].reshape(-1, length), numbers[1 : end + 1].reshape(-1, length)


def batches(
    data: Dataset, batch: int, seed: int, epoch: int, *, drop_last: bool = True
) -> Iterator[tuple[Samples, Labels]]:
    """The training set in random order, in mini-batches.

    The order depends on `seed` and `epoch` alone, so a resumed run sees the same batches.

    Args:
        data: The data set.
        batch: Images, or pieces of text, per mini-batch, from 1 to the size of the training set.
        seed: Seed of the order.
        epoch: Number of the pass, from 0.
        drop_last: Whether a last batch that is not full is left out.

    Raises:
        DataError: if `batch` is out of range.
    """
    require_batch(data, batch)
    count = len(data.train_x)
    order = shuffled(count, seed, epoch)
    for start in range(0, count - batch + 1 if drop_last else count, batch):
        chosen = order[start : start + batch]
        yield data.train_x[chosen], data.train_y[chosen]


def require_batch(data: Dataset, batch: int) -> None:
    """Raises DataError unless the training set has samples for a mini-batch."""
    count = len(data.train_x)
    if not 1 <= batch <= count:
        samples = "pieces of the text" if data.is_text else "training images"
        raise DataError(f"batch = {batch}: choose between 1 and the {count} {samples}")


def shuffled(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The numbers from 0 to count - 1 in the order in which a pass takes the images."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def read_idx(path: str | Path) -> NDArray[Any]:
    """The array in an IDX file, plain or gzipped, in the machine's byte order.

    Raises:
        DataError: if the file cannot be read, is not IDX, or its length is not what its header
            says.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}); fetch the file again") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES:
        raise DataError(f"{path}: not an IDX file (it does not start with an IDX header)")
    dtype, dimensions = _IDX_TYPES[content[2]], content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataError(f"{path}: truncated within the header; fetch the file again")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if len(content) - start != expected:
        raise DataError(
            f"{path}: {len(content) - start} bytes of data where the header promises {expected} "
            f"for shape {list(shape)}; the file is truncated or damaged, fetch it again"
        )
    values: NDArray[Any] = np.frombuffer(content, dtype, offset=start)
    return values.reshape(shape).astype(dtype.newbyteorder("="))


def _images_and_labels(
    folder: Path, parts: tuple[str, ...]
) -> tuple[Images, Labels, tuple[int, ...]]:
    """Images as rows of pixels, their labels, and the shape of an image."""
    images_file = _find(folder, [f"{part}-images-idx3-ubyte" for part in parts])
    labels_file = _find(folder, [f"{part}-labels-idx1-ubyte" for part in parts])
    images, labels = read_idx(images_file), read_idx(labels_file)
    if images.ndim < 2 or len(images) == 0:
        raise DataError(f"{images_file}: shape {list(images.shape)} is not that of images")
    if labels.shape != images.shape[:1]:
        raise DataError(
            f"{labels_file}: shape {list(labels.shape)} does not fit the {len(images)} images of "
            f"{images_file.name}; the files belong to different data sets"
        )
    scale = 255.0 if images.dtype == np.uint8 else 1.0
    pixels = images.reshape(len(images), -1).astype(np.float32) / np.float32(scale)
    return pixels, labels.astype(np.int64), images.shape[1:]


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _find(folder: Path, names: list[str]) -> Path:
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise DataError(f"{folder}: there is no file {names[0]} or {names[0]}.gz")
