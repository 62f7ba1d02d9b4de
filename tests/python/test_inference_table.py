"""The table of methods over a year, benchmarks/inference_table.py, runs in small and goes on."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "inference_table.py"
IMAGES = Path("/usr/share/datasets/fashion-mnist")
METHODS = 15


def run(folder: Path, *options: str, stderr: int | None = None) -> str:
    command = [
        sys.executable, str(SCRIPT), "--small", "--networks", "deep", "--memories", "PCMLike",
        "--out", str(folder), *options,
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.check_output(command, text=True, env=environment, stderr=stderr)  # noqa: S603


def digital(folder: Path) -> float:
    rows = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    return next(float(row["score"]) for row in rows if row["key"] == "gpt|digital|1")


@pytest.mark.skipif(not IMAGES.exists(), reason="needs the package dataset-fashion-mnist")
def test_the_small_table_has_all_methods_and_goes_on(tmp_path: Path) -> None:
    text = run(tmp_path, "--methods", "plain, global;LoRA on this chip")
    assert "| plain, global |" in text
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert len(lines) == 3  # the network itself, too
    text = run(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [json.dumps(row) for row in rows[:3]] == lines  # runs that exist are not made again
    runs = [row for row in rows if "method" in row]
    assert len({row["method"] for row in runs}) == len(runs) == METHODS
    for row in runs:
        assert f"| {row['method']} |" in text
        assert all(0.0 <= value <= 100.0 for each in row["values"] for value in each)
        assert len(row["values"]) == 2  # times
    cost = {row["method"]: row for row in runs}
    assert cost["plain, global"]["steps"] == 0
    assert cost["LoRA on this chip"]["steps"] == 2 * 3
    assert cost["LoRA on this chip"]["parameters"] < cost["HWA, noise model"]["parameters"]
    assert cost["pulsed 6T1C on this chip"]["pulses"] > 0
    assert (tmp_path / "inference.png").stat().st_size > 1000
    assert run(tmp_path, "--table") == text[text.index("deep on PCMLike") :]


def test_rates_are_tried_until_the_best_has_others_on_both_sides() -> None:
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        from inference_methods import GRID, RATES, further_rate  # noqa: PLC0415
    finally:
        sys.path.pop(0)
    best = 0.1
    found = {lr: -abs(math.log(lr / best)) for lr in GRID}
    while (lr := further_rate(found)) is not None:
        found[lr] = -abs(math.log(lr / best))
    assert sorted(found) == [*GRID, 0.03, 0.1, 0.3]
    assert further_rate({3e-4: 2.0, 1e-3: 1.0}) == 1e-4
    assert further_rate({3e-4: 1.0, 1e-3: math.nan, 3e-3: 0.5}) == 1e-4
    assert further_rate({RATES[0]: 2.0, RATES[1]: 1.0}) is None
    assert further_rate({RATES[-1]: 2.0, RATES[-2]: 1.0}) is None


@pytest.mark.nightly
def test_later_runs_of_a_folder_have_the_text_of_the_first(tmp_path: Path) -> None:
    options = ("--networks", "gpt", "--methods", "plain, global")
    docs = SCRIPT.parents[1] / "docs"
    run(tmp_path / "new", *options)
    pages = [page.read_bytes() for page in sorted(docs.rglob("*.md"))]
    assert (tmp_path / "new" / "gpt_text.bin").read_bytes() == b"".join(pages)

    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "gpt_text.bin").write_bytes(b"a" * 50_000)
    run(kept, *options)
    assert (kept / "gpt_text.bin").read_bytes() == b"a" * 50_000
    assert digital(kept) < 4.0 < digital(tmp_path / "new")  # bits: one letter is soon learnt


def test_runs_whose_text_is_missing_are_refused(tmp_path: Path) -> None:
    runs = tmp_path / "runs.jsonl"
    line = json.dumps({"key": "gpt|digital|1", "score": 2.0}) + "\n"
    runs.write_text(line)
    with pytest.raises(subprocess.CalledProcessError) as error:
        run(tmp_path, "--networks", "deep,gpt", stderr=subprocess.STDOUT)
    assert f"--out is {tmp_path}, which has runs or networks of gpt" in error.value.output
    assert "copy their gpt_text.bin into it" in error.value.output
    assert [path.name for path in tmp_path.iterdir()] == ["runs.jsonl"]
    assert runs.read_text() == line
    runs.unlink()
    (tmp_path / "gpt_2.pt").touch()
    with pytest.raises(subprocess.CalledProcessError):
        run(tmp_path, "--networks", "gpt", stderr=subprocess.STDOUT)


@pytest.mark.nightly
def test_only_single_devices_have_a_reference_column(tmp_path: Path) -> None:
    options = ("--networks", "gpt", "--memories", "Hermes,ReRamCMO")
    run(tmp_path, *options, "--methods", "plain, column reference")
    run(tmp_path, *options, "--methods", "plain, global")
    rows = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [row["key"] for row in rows] == [
        "gpt|digital|1",
        "gpt|ReRamCMO|plain, column reference|1",
        "gpt|Hermes|plain, global|1",
        "gpt|ReRamCMO|plain, global|1",
    ]
    assert rows[1]["values"] != rows[3]["values"]


def test_the_compact_table_has_scores_and_paired_differences(tmp_path: Path) -> None:
    def row(network: str, memory: str, method: str, seed: int, year: float) -> dict[str, object]:
        return {
            "key": f"{network}|{memory}|{method}|{seed}", "network": network, "memory": memory,
            "method": method, "seed": seed, "values": [[90.0, 88.0], [year, year + 2.0]],
        }  # fmt: skip

    rows = [
        row("lenet", "Hermes", "plain, global", 1, 80.0),
        row("lenet", "Hermes", "plain, global", 2, 70.0),
        row("lenet", "Hermes", "plain, affine", 1, 81.0),
        row("lenet", "Hermes", "plain, affine", 2, 73.0),
        row("deep", "Hermes", "plain, global", 1, 60.0),
        row("deep", "fitted", "plain, global", 1, 50.0),
    ]
    one, other = tmp_path / "one.json", tmp_path / "other.jsonl"
    one.write_text(json.dumps(rows[:3]))
    other.write_text("".join(json.dumps(each) + "\n" for each in rows[3:]))
    options = ("--networks", "lenet,deep", "--memories", "Hermes", "--compact")
    lines = run(tmp_path / "out", *options, "--table", str(one), str(other)).splitlines()
    assert lines == [
        "Hermes",
        "",
        "| method | LeNet-5 | | perceptron | |",
        "|---|---|---|---|---|",
        "| plain, global | 89.00, 76.00 |  | 89.00, 61.00 (1) |  |",
        "| plain, affine | 89.00, 78.00 | +2.00 ± 1.00 |  |  |",
        "",
    ]
    assert (tmp_path / "out" / "memories.png").stat().st_size > 1000
    assert not (tmp_path / "out" / "inference.png").exists()  # nothing of PCMLike
    assert not (tmp_path / "out" / "runs.jsonl").exists()
