"""Golden values: what every build of this version gives, in `golden.json` beside this module.

The file contains the version, hashes of all cases, and the defaults of all parameters, with a
checksum. `make golden` writes the file; tests/python/test_selftest.py checks that it is current.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pulsora import _core
from pulsora.verification.cases import Place, case_names, hash_of

__all__ = ["PATH", "GoldenError", "current", "defaults", "read", "text_of"]

PATH = Path(__file__).with_name("golden.json")


class GoldenError(ValueError):
    """A file of golden values that is missing or damaged."""


def defaults() -> dict[str, Any]:
    """Defaults of all parameters, by names such as "devices.SoftBounds.dw_min"."""
    schema = _core.schema()
    found = {}
    groups = {group: schema[group] for group in ("devices", "noise_models", "compounds")}
    for group, members in groups.items():
        for member, facts in members.items():
            for one in facts["fields"]:
                found[f"{group}.{member}.{one['name']}"] = one["default"]
    for struct, fields in schema["structs"].items():
        for one in fields:
            found[f"{struct}.{one['name']}"] = one["default"]
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def base_version(version: str) -> str:
    """A version without the local part that names CUDA: "0.1.0" of "0.1.0+cu13"."""
    return version.partition("+")[0]


def current() -> dict[str, Any]:
    """The golden values of this build, by one thread."""
    return {
        "version": base_version(_core.__version__),
        "hashes": {name: hash_of(name, Place()) for name in case_names()},
        "defaults": defaults(),
    }


def text_of(values: dict[str, Any]) -> str:
    """The content of the file, with its checksum."""
    return json.dumps({"checksum": _checksum(values), **values}, indent=1, sort_keys=True) + "\n"


def _checksum(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read(path: Path | None = None) -> dict[str, Any]:
    """The golden values of the package, or of another file.

    Raises:
        GoldenError: If the file is missing or damaged.
    """
    chosen = PATH if path is None else path
    remedy = "install pulsora again"
    try:
        values: dict[str, Any] = json.loads(chosen.read_text(encoding="utf-8"))
        checksum = values.pop("checksum")
        whole = checksum == _checksum(values) and {"version", "hashes", "defaults"} <= set(values)
    except OSError as error:
        raise GoldenError(f"{chosen.name} cannot be read ({error.strerror}); {remedy}") from None
    except (ValueError, KeyError, AttributeError, TypeError):
        whole = False
    if not whole:
        raise GoldenError(f"{chosen.name} is damaged: its checksum does not fit; {remedy}")
    return values
