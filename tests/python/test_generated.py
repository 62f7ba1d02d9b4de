from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pulsora import _core

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "generate_api.py"


def test_stubs_and_reference_pages_are_up_to_date() -> None:
    check = subprocess.run(  # noqa: S603
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_every_parameter_is_documented() -> None:
    schema = _core.schema()
    tables = {name: entry["fields"] for name, entry in schema["devices"].items()}
    tables |= {entry["name"]: entry["fields"] for entry in schema["compounds"].values()}
    for name, fields in (tables | schema["structs"]).items():
        for field in fields:
            doc = field["doc"]
            assert doc.endswith("."), f"{name}.{field['name']}: {doc}"
            assert len(doc) > 10, f"{name}.{field['name']}: {doc}"
            assert field["type"] != "enum" or len(field["choices"]) > 1
