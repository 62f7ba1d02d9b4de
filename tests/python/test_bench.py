"""`pulsora bench`: the cases, their least work, the check before each, and what it writes."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import pulsora as pl
from conftest import ROOT
from cpu_table import row, with_bounds
from pulsora.bench import machine, measure
from pulsora.bench.cases import OPERATIONS, Case, cases, work_of
from pulsora.bench.machine import Ceilings, Place, Work
from pulsora.bench.measure import WrongResultError, check, run
from pulsora.bench.report import remark, table
from pulsora.cli import app
from pulsora.plot import plot_roofline

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SMALL = [
    "bench",
    "--sizes",
    "24",
    "--batch",
    "6",
    "--seconds",
    "0",
    "--threads",
    "1",
]
ADAPTER = [*SMALL, "--rank", "3"]
ALL = cases(["ConstantStep", "ReRamSB"], [24], 6, ranks=(0, 3), transfer_every=2)


def call(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@pytest.fixture(autouse=True)
def _small_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings of small arrays: as real as others, and quick."""
    monkeypatch.setattr(machine, "_COPY_FLOATS", {"cpu": 1 << 16, "cuda": 1 << 20})
    monkeypatch.setattr(machine, "_PRODUCT_SIZE", {"cpu": 64, "cuda": 256})


def test_cases_are_all_combinations() -> None:
    assert len(ALL) == 2 * 2 * len(OPERATIONS)
    assert len(set(ALL)) == len(ALL)
    assert {case.tile for case in ALL} >= {"ReRamSB", "ConstantStep, LRTT K=3"}
    steps = [case for case in ALL if case.rank and case.operation == "step"]
    assert len(steps) == 2
    assert all(case.transfer_every == (2 if case in steps else 0) for case in ALL)


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.tile}, {case.operation}")
def test_every_case_is_right_and_can_be_measured(case: Case) -> None:
    place = Place("cpu", 2)
    result = run(case, place, seconds=0.0)
    time = result.time
    assert time.runs == 5
    assert 0.0 < time.lower <= time.median <= time.upper
    assert time.host <= time.upper
    ceilings = Ceilings(1e9, 1e9)
    assert result.reached(ceilings) == pytest.approx(ceilings.bound(result.work)[0] / time.median)


@pytest.mark.parametrize("operation", ["forward", "update sparse", "step"])
@pytest.mark.parametrize("rank", [0, 3])
def test_a_wrong_result_is_found(
    operation: str, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(operation, "ConstantStep", 24, 6, rank)
    check(case, Place("cpu", 2))
    honest = pl.Tile.update
    honest_read = pl.Tile.forward

    def update(self: pl.Tile, x: NDArray[np.float32], d: object, lr: float, **more: bool) -> None:
        honest(self, x, d, lr if self.threads == 1 else 1.5 * lr, **more)

    def forward(self: pl.Tile, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        honest_read(self, x, out)
        out[-1, -1] += np.float32(1e-6 if self.threads > 1 else 0.0)

    name, wrong = ("forward", forward) if operation == "forward" else ("update", update)
    monkeypatch.setattr(pl.Tile, name, wrong)
    with pytest.raises(WrongResultError, match=f"{operation}, ConstantStep.* differ by"):
        check(case, Place("cpu", 2))


def test_least_work_counts_what_the_case_touches() -> None:
    read = work_of(Case("forward", "SoftBounds", 100, 10))
    assert read == Work(4.0 * (100 * 100 + 2 * 10 * 100), 100 * 100 * 10)
    assert work_of(Case("backward", "SoftBounds", 100, 10)) == read
    update = work_of(Case("update sparse", "SoftBounds", 100, 10))
    assert update.bytes == 16.0 * 100 * 100 + 4.0 * 2 * 100 * 10
    dense = work_of(Case("update dense", "SoftBounds", 100, 10))
    assert dense.bytes == update.bytes
    # A normal, a count and a rule in each of 10 samples, and the words of 2 x 100 lines.
    assert dense.operations == pytest.approx(1e5 * (28.0 + 6.0 + 20.0) + 200 * 90 * 34.0)
    assert update.operations < 0.2 * dense.operations
    step = work_of(Case("step", "SoftBounds", 100, 10))
    assert step == read * 2.0 + update


def test_least_work_of_an_adapter() -> None:
    case = Case("update dense", "SoftBounds", 100, 10, rank=4)
    # A and B, read once and pulsed once (4 + 16 bytes), x and d twice, and words.
    lines = 2 * 10 * (100 + 4)
    assert work_of(case).bytes == 2 * 4 * 100 * 20 + 4.0 * lines + 4.0 * lines
    reads = [work_of(replace(case, operation="forward", rank=rank)) for rank in (0, 4)]
    assert reads[1].operations == reads[0].operations + 2 * 4 * 100 * 10
    step = replace(case, operation="step")
    shares = [
        work_of(replace(step, transfer_every=every)).operations - work_of(step).operations
        for every in (1, 10)
    ]
    assert shares[0] == pytest.approx(10.0 * shares[1])
    assert shares[1] > 0.0


def test_the_cpu_table_adds_bounds_to_what_was_measured() -> None:
    common = {"size": 512, "batch": 64, "isa": "V4", "threads": 2}
    times = {"median": 9e3, "lower_quartile": 8e3, "upper_quartile": 1e4}
    cases = [("update dense", "SoftBounds"), ("words dense", "-"), ("forward", "SoftBounds")]
    cases += [("full step dense", "SoftBounds"), ("update sparse", "ConstantStep")]
    cases += [("LRTT step sparse, K = 8", "SoftBounds + ConstantStep")]
    raw = [{"operation": name, "device": device} | common | times for name, device in cases]
    raw.append(raw[0] | {"isa": "V2"})
    slow = Ceilings(bytes=1e30, operations=1e9)  # bounds are set by operations
    made = with_bounds({"unit": "us", "results": raw}, {2: slow}, lanes=16)
    assert [list(result) for result in made["results"]] == [[*raw[0], "bound"]] * 7
    # Microseconds at 1000 operations each.
    update, words, read, step, sparse, adapter, narrow = (r["bound"] for r in made["results"])
    assert update == pytest.approx(512**2 * 64 * (28.0 + 6.0 + 20.0) / 1e3)
    assert words == pytest.approx(1024 * 64 * 9 * 34.0 / 1e3)
    assert read == pytest.approx(512**2 * 64 / 1e3)
    assert step == pytest.approx(2.0 * read + update + words)
    assert sparse == pytest.approx(512**2 * 64 * 0.025 * (0.7 * 124.0 + 25.0 + 3.0) / 1e3)
    assert 2.0 * read < adapter < step
    assert narrow == pytest.approx(4.0 * update)
    assert [peak["lane_operations_per_s"] for peak in made["peaks"]] == [0.25e9, 1e9]
    line = row(made["results"][0])
    assert line.startswith(
        "| update dense | SoftBounds | 512 | 64 | V4 | 2 | 9000 | 8000 to 10000 |"
    )
    assert line.endswith(f" | {update / 9e3:.0%} | 90x |")
    with pytest.raises(ValueError, match="operation 'fly'"):
        with_bounds({"results": [raw[0] | {"operation": "fly"}]}, {2: slow}, lanes=16)


def test_bounds_are_set_by_bytes_or_operations() -> None:
    ceilings = Ceilings(bytes=100.0, operations=1000.0)
    assert ceilings.bound(Work(bytes=50.0, operations=100.0)) == (0.5, "bytes")
    assert ceilings.bound(Work(bytes=50.0, operations=2000.0)) == (2.0, "operations")
    assert ceilings | Ceilings(200.0, 500.0) == Ceilings(200.0, 1000.0)


@pytest.mark.parametrize("has_torch", [True, False])
def test_ceilings_are_measured_with_and_without_torch(
    has_torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_torch:
        monkeypatch.setattr(machine, "_torch", lambda: None)
    ceilings = machine.measure_ceilings(Place("cpu", 1))
    assert 1e6 < ceilings.bytes < 1e14
    assert 1e6 < ceilings.operations < 1e14


def test_a_gpu_is_not_timed_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_torch", lambda: None)
    monkeypatch.setattr(machine._core, "require_place", lambda *_: None)
    with pytest.raises(ImportError, match=r"device = 'cuda:0'.*torch"):
        Place("cuda:0")


def test_the_command_writes_a_table_a_roofline_and_numbers(tmp_path: Path) -> None:
    picture, numbers = tmp_path / "roofline.png", tmp_path / "bench.json"
    code, output = call(*ADAPTER, "--models", "EcRam", "--plot", picture, "--json", numbers)
    assert code == 0, output
    for text in ("EcRam, LRTT K=3", "update sparse", "reached", "GB/s", "operations"):
        assert text in output
    assert picture.read_bytes().startswith(b"\x89PNG")
    written = json.loads(numbers.read_text())
    assert written["device"] == "cpu"
    assert written["ceilings"]["bytes"] > 0.0
    assert len(written["results"]) == 2 * len(OPERATIONS)
    for result in written["results"]:
        assert (result["size"], result["batch"]) == (24, 6)
        assert result["limit"] in {"bytes", "operations"}
        ceiling = written["ceilings"][result["limit"]]
        assert result["bound"] == pytest.approx(result[result["limit"]] / ceiling)
        assert result["reached"] == pytest.approx(result["bound"] / result["median"])


def test_a_wrong_result_is_left_out_and_sets_the_exit_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = measure.check

    def check(case: Case, place: Place) -> None:
        if case.operation == "backward":
            raise WrongResultError("backward went wrong")
        honest(case, place)

    monkeypatch.setattr(measure, "check", check)
    code, output = call(*SMALL, "--no-lrtt", "--models", "EcRam")
    assert code == 1
    assert "wrong: backward went wrong" in output
    assert "forward" in output
    assert "reached" in output


def test_the_table_is_whole_in_80_columns() -> None:
    place, ceilings = Place("cpu", 1), Ceilings(1e9, 1e9)
    time = measure.Timing(0.1234567, 0.1, 0.2, 0.12, 5)
    slow = [
        measure.Result(Case(operation, model, 65536, 64, rank), time, Work(3e7, operations))
        for operation, operations in (("update sparse", 1e6), ("update dense", 9e7))
        for model in ("SoftBoundsReference", "EcRam")
        for rank in (0, 128)
    ]
    console = Console(width=80, file=io.StringIO())
    console.print(table(slow, place, ceilings))
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    for text in ("SoftBoundsReference", "LRTT K=128", "update sparse", "65536", "123457", "81%"):
        assert text in shown
    for text in ("30000", "90000", "bytes", "ops", "24%", "73%"):
        assert shown.count(text) >= 4


def test_help_names_the_librarys_default_where_it_is_another() -> None:
    _, output = call("bench", "--help")
    text = " ".join(output.replace("│", " ").split())
    default = pl.LRTTConfig().transfer_every
    assert f"the library's default is {default}." in text
    page = " ".join((ROOT / "docs" / "reference" / "cli.md").read_text().split())
    assert f"The default is 10 here and {default} in the library" in page
    assert "[default: (10)]" in text


def test_cases_may_be_chosen() -> None:
    code, output = call(*SMALL, "--no-lrtt", "--operations", "forward, update dense")
    assert code == 0, output
    assert "update dense" in output
    assert not any(absent in output for absent in ("LRTT", "step ", "backward", "update sparse"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "0"], "sizes must be at least 1 (got 0)"),
        (["--sizes", "8,x"], "--sizes must be whole numbers, such as 256,128 (got '8,x')"),
        (["--batch", "0"], "--batch must be at least 1 (got 0)"),
        (["--rank", "0"], "--rank must be at least 1 (got 0)"),
        (["--rank", "25"], "rank = 25 exceeds the array of size 24"),
        (["--transfer-every", "-1"], "--transfer-every must be at least 0 (got -1)"),
        (["--models", "EcRom"], "no device preset or model 'EcRom'"),
        (["--models", "Device"], "no device preset or model 'Device'"),
        (["--models", ""], "nothing to measure"),
        (["--operations", "fly"], "operation 'fly'"),
        (["--device", "gpu"], "device is 'gpu'"),
        (["--device", "cuda:99"], "cuda"),
        (["--threads", "0"], "--threads is 0"),
        (["--seconds", "-1"], "--seconds must be at least 0 (got -1.0)"),
        (["--plot", "absent/roofline.png"], "there is no folder 'absent'"),
        (["--json", "absent/bench.json"], "there is no folder 'absent'"),
    ],
)
def test_errors_are_one_line(arguments: list[str], message: str) -> None:
    code, output = call(*ADAPTER, *arguments)
    assert code == 2, output
    line = output.strip().splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line


@pytest.mark.parametrize(
    ("load", "policy", "threads", "expected"),
    [
        (0.5, "", 2, None),
        (3.0, "PASSIVE", 2, "upper limits"),
        (3.0, "active", 2, "OMP_WAIT_POLICY=passive"),
        (3.0, "active", 1, "upper limits"),
    ],
)
def test_a_busy_machine_is_remarked_on(
    load: float, policy: str, threads: int, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    text = remark(Place("cpu", threads))
    if expected is None:
        assert text is None
    else:
        assert text is not None
        assert text.endswith("upper limits") == (expected == "upper limits")
        assert expected in text


def test_a_roofline_needs_results() -> None:
    with pytest.raises(ValueError, match="no results"):
        plot_roofline([], Ceilings(1.0, 1.0))


def _usable_gpu() -> bool:
    try:
        Place("cuda")
    except (pl.DeviceError, ImportError):
        return False
    return True


@pytest.mark.skipif(not _usable_gpu(), reason="no GPU that torch and this build of Pulsora can use")
@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.tile}, {case.operation}")
def test_every_case_is_right_on_the_gpu(case: Case) -> None:
    result = run(replace(case, size=96, batch=16), Place("cuda:0"), seconds=0.0)
    assert result.time.median > 0.0
    assert result.time.runs == 5
