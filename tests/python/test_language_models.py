"""The benchmark of large language models, with a small shape on the CPU."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import language_models


@pytest.mark.parametrize("what", ["LRTT", "SoftBounds", "digital float32"])
def test_a_model_learns_a_batch_and_goes_on_after_it_was_saved(what: str, tmp_path: Path) -> None:
    options = argparse.Namespace(
        shape="small", rows=1, tokens=24, tiles=0, steps=5, lr=0.1, device="cpu", again=tmp_path
    )
    found = language_models.measure(options, what)
    assert found["losses"][-1] < found["losses"][0] - 0.3
    assert found["continues"] == ("" if what.startswith("digital") else "to the bit")
    assert what in language_models.table([found])[-1]
