"""Settings as one table of text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["flat"]


def flat(settings: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Settings as text, those of inner tables by names with points between."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{name}.")
        elif value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            found[f"{before}{name}"] = text
    return found
