"""Tensors in safetensors files: names and shapes first, then one tensor after another."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor
    from typing_extensions import Self

__all__ = [
    "StoredTensor",
    "TensorReader",
    "is_storable",
    "require_safetensors",
    "stored_tensors",
    "tensor_files",
    "write_tensors",
]

_SUFFIX = ".safetensors"
_INDEX = ".safetensors.index.json"
_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}


class StoredTensor(NamedTuple):
    """A tensor in a file.

    Attributes:
        path: The file.
        name: The name of the tensor in the file.
        shape: Its shape.
        dtype: The name of its type in the file, such as 'BF16'.
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_floating(self) -> bool:
        """Whether the tensor has floating-point numbers of 16 bits or more."""
        return self.dtype in {"F16", "BF16", "F32", "F64"}


def require_safetensors(what: str) -> Any:  # noqa: ANN401 - a module
    """Returns the module `safetensors`; ImportError with a remedy without it."""
    try:
        import safetensors  # noqa: PLC0415 - only what reads or writes these files needs it
        import safetensors.torch  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{what} are read and written by safetensors; install it with pip install 'pulsora[hf]'"
        ) from error
    return safetensors


@cache
def is_storable(dtype: torch.dtype) -> bool:
    """Whether files hold tensors of a type, which safetensors tells by writing an empty one."""
    library = require_safetensors("saved models")
    try:
        library.torch.save({"empty": torch.empty(0, dtype=dtype)})
    except Exception:  # noqa: BLE001 - of many types
        return False
    return True


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes contiguous tensors on the CPU, none of which share memory, into a new file.

    Raises:
        OSError: If the file cannot be written.
    """
    library = require_safetensors("saved models")
    try:
        library.torch.save_file(dict(tensors), path)
    except library.SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error
    with path.open("rb") as file:
        os.fsync(file.fileno())


def tensor_files(files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Returns the safetensors files that a file, an index, a folder or a list of these means.

    Raises:
        FileNotFoundError: for a file that does not exist, or a folder without weights.
        ValueError: for pickles, which are never read, other files, and a damaged index.
    """
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    if not given:
        raise ValueError("files = []: give a safetensors file, an index, or a folder of them")
    found: dict[Path, None] = {}
    for each in given:
        path = Path(each)
        if path.is_dir():
            found |= dict.fromkeys(_in_folder(path))
        elif not path.exists():
            raise FileNotFoundError(f"files: there is no {path}")
        elif path.name.endswith(_INDEX):
            found |= dict.fromkeys(_in_index(path))
        elif path.suffix == _SUFFIX:
            found[path] = None
        else:
            raise ValueError(f"files: {path} {_why_not(path)}")
    return list(found)


def _why_not(path: Path) -> str:
    is_pickle = path.suffix in _PICKLES or path.name.endswith(".bin.index.json")
    return (
        "is a pickle, which could execute anything; save the model again as safetensors, by "
        "model.save_pretrained(folder) or safetensors.torch.save_model(model, file)"
        if is_pickle
        else f"is no file that ends in {_SUFFIX} or {_INDEX}, and no folder"
    )


def _in_folder(folder: Path) -> list[Path]:
    """Returns the files of a folder: those of its index, or else all."""
    indices = sorted(folder.glob(f"*{_INDEX}"))
    if len(indices) > 1:
        raise ValueError(
            f"files: {folder} has several indices ({', '.join(each.name for each in indices)}); "
            "name one of them"
        )
    if indices:
        return _in_index(indices[0])
    found = sorted(folder.glob(f"*{_SUFFIX}"))
    if not found:
        others = [each for each in sorted(folder.iterdir()) if each.suffix in _PICKLES]
        more = f"; {others[0].name} {_why_not(others[0])}" if others else ""
        raise FileNotFoundError(f"files: {folder} has no file that ends in {_SUFFIX}{more}")
    return found


def _in_index(index: Path) -> list[Path]:
    """Returns the files that an index of Hugging Face names."""
    try:
        named = json.loads(index.read_text())["weight_map"].values()
        names = sorted({str(name) for name in named})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"files: {index} is no index with a weight_map ({error!r})") from None
    for name in names:
        if Path(name).name != name or not name.endswith(_SUFFIX):
            raise ValueError(
                f"files: {index} names {name!r}, which is no safetensors file in its folder"
            )
        if not (index.parent / name).is_file():
            raise FileNotFoundError(f"files: {index} names {name}, which is not in its folder")
    return [index.parent / name for name in names]


def stored_tensors(paths: Iterable[Path]) -> list[StoredTensor]:
    """Returns what is in the files, in their order, without reading the numbers.

    Raises:
        ValueError: for a damaged file, and a name that is in two files.
    """
    found: dict[str, StoredTensor] = {}
    for path in paths:
        with TensorReader() as reader:
            file = reader.opened(path)
            for name in file.keys():  # noqa: SIM118 - of safetensors, which has no __iter__
                if name in found:
                    raise ValueError(f"'{name}' is in {found[name].path} and in {path}; name one")
                part = file.get_slice(name)
                shape = tuple(part.get_shape())
                found[name] = StoredTensor(path, name, shape, str(part.get_dtype()))
    return list(found.values())


class TensorReader:
    """Reads tensors from files, one of which is open at a time."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._file: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file that is open."""
        if self._file is not None:
            self._file.__exit__(None, None, None)
        self._path = self._file = None

    def opened(self, path: Path) -> Any:  # noqa: ANN401 - safetensors gives no type
        """Returns the file, opened by safetensors.

        Raises:
            ValueError: if it is damaged.
        """
        if path != self._path:
            self.close()
            library = require_safetensors("files of weights")
            try:
                self._file = library.safe_open(os.fspath(path), framework="pt", device="cpu")
                self._file.__enter__()
            except Exception as error:  # noqa: BLE001 - of many types
                self._file = None
                raise ValueError(
                    f"{path} is no complete safetensors file ({error}); was it cut short? Copy or "
                    "download it again"
                ) from None
            self._path = path
        return self._file

    def read(self, stored: StoredTensor) -> Tensor:
        """Returns a tensor, which may be a view of the file."""
        tensor: Tensor = self.opened(stored.path).get_tensor(stored.name)
        return tensor
