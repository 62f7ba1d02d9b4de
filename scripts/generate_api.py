#!/usr/bin/env python3
"""Writes the files that follow from the core's table of parameters: stubs and reference pages.

    generate_api.py            writes the files
    generate_api.py --check    fails, naming them, if files differ from what would be written
    generate_api.py --plots    also draws docs/images/<model>.png, the response of each device model
    generate_api.py --output DIR   writes below another folder

It describes the pulsora that is imported, so build that first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from api_pages import devices_page, draw, noise_models_page, parameters_page, snake
from api_stubs import config_stub, core_stub, models_stub, noise_models_stub

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable


ROOT = Path(__file__).resolve().parent.parent

FILES: dict[str, Callable[[], str]] = {
    "python/pulsora/_core.pyi": core_stub,
    "python/pulsora/config.pyi": config_stub,
    "python/pulsora/devices/models.pyi": models_stub,
    "python/pulsora/noise_models/models.pyi": noise_models_stub,
    "docs/reference/devices.md": devices_page,
    "docs/reference/noise_models.md": noise_models_page,
    "docs/reference/parameters.md": parameters_page,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Writes type stubs and reference pages from the core."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is stale"
    )
    parser.add_argument(
        "--plots", action="store_true", help="also draw the responses of all models"
    )
    parser.add_argument(
        "--output", type=Path, default=ROOT, help="folder to write to instead of the sources"
    )
    options = parser.parse_args()
    stale = []
    for name, make in FILES.items():
        path, text = options.output / name, make()
        if options.check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    images = {
        model: options.output / "docs" / "images" / f"{snake(model)}.png"
        for model in pl.devices.MODELS
    }
    if options.check:
        stale += [str(path.relative_to(ROOT)) for path in images.values() if not path.exists()]
    elif options.plots:
        for model, path in images.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            draw(model, path)
    for name in stale:
        print(f"{name} is stale; run scripts/generate_api.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
