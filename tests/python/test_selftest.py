"""The self-test passes on this machine, and finds every fault that is planted here."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

import pulsora as pl
from pulsora import _core, noise_models
from pulsora.cli import app
from pulsora.tile import Tile
from pulsora.verification import Check, SelfTest, golden, machine, selftest
from pulsora.verification.cases import Place, case_names, hash_of

if TYPE_CHECKING:
    from pathlib import Path

    from pulsora.tile.arrays import Matrix

FEW = (
    "devices/SoftBounds/stochastic_compressed",
    "devices/ExpStep/stochastic",
    "compounds/single",
    "compounds/lrtt",
    "noise_models/PCMLike",
    "threads",
)
"""Cases that stand for all, so that a test takes a second."""


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A golden file of few cases, which the self-test reads instead of its own."""
    values = golden.read()
    values["hashes"] = {name: values["hashes"][name] for name in FEW}
    path = tmp_path / "golden.json"
    path.write_text(golden.text_of(values))
    monkeypatch.setattr(golden, "PATH", path)
    return path


def verdict() -> str:
    result = selftest(speeds=False)
    assert result.ok == result.verdict.startswith("OK")
    return result.verdict


def fault() -> str:
    text = verdict()
    assert text.startswith("FAULT: ")
    assert "\n" not in text
    return text


def test_golden_values_are_current() -> None:
    """`make golden` writes them anew. Other tests register models, hence a process of its own."""
    code = (
        "from pulsora.verification import golden; print(golden.text_of(golden.current()), end='')"
    )
    now = subprocess.check_output([sys.executable, "-c", code], text=True)  # noqa: S603
    assert golden.PATH.read_text() == now
    assert "hashes" in golden.read()


def test_every_model_compound_and_noise_model_has_golden_bits() -> None:
    hashes = golden.read()["hashes"]
    assert list(hashes) != []
    assert set(hashes) == set(case_names())
    for model in pl.devices.MODELS:
        assert f"devices/{model}/stochastic_compressed" in hashes
    for kind in pl.config.CLASSES:
        assert f"compounds/{kind}" in hashes
    noise = [hashes[f"noise_models/{model}"] for model in noise_models.MODELS]
    assert len(set(noise)) == len(noise)  # each tells its model from the others
    cells = {name: value for name, value in hashes.items() if name.startswith("cells/")}
    assert len(cells) == 6 * len(noise)
    for model in noise_models.MODELS:  # each cell tells itself from the others, too
        of_model = {value for name, value in cells.items() if name.endswith(f"/{model}")}
        # Shift is exact by default, so that a column of cells is as good as a digital reference.
        assert len(of_model - set(noise)) == (5 if model == "Shift" else 6)
    compounds = [value for name, value in hashes.items() if name.startswith("compounds/")]
    assert len(set(compounds)) == len(compounds)


def test_a_sound_installation_passes() -> None:
    steps: list[str] = []
    result = pl.selftest(speeds=False, progress=steps.append)
    assert result.ok, str(result)
    assert result.verdict.startswith("OK: ")
    assert steps == [check.name for check in result.checks]
    names = {check.name for check in result.checks if not check.skipped}
    assert {"golden file", "versions", "modules", "instruction sets", "threads", "resume"} <= names
    assert {f"golden bits, {isa}" for isa in _core.instruction_sets()} <= names
    if not _core.cuda_device_count():
        assert "GPU = CPU" in result.verdict  # named as not checked


def test_fault_1_a_flipped_golden_bit(few: Path) -> None:
    values = golden.read()
    name = FEW[0]
    old = values["hashes"][name]
    values["hashes"][name] = f"{int(old, 16) ^ 1:016x}"
    few.write_text(golden.text_of(values))
    assert f"{name} differs ({old}, golden {values['hashes'][name]})" in fault()
    assert FEW[1] not in fault()


@pytest.mark.usefixtures("few")
def test_fault_2_a_wrong_instruction_set_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _core.instruction_sets()
    wrong = found[:-1] if len(found) > 1 else [*found, "V3"]
    monkeypatch.setattr(_core, "instruction_sets", lambda: wrong)
    assert "instruction sets: " in fault()


@pytest.mark.usefixtures("few")
@pytest.mark.skipif(len(_core.instruction_sets()) < 2, reason="this machine has one")
def test_fault_2_a_wrong_instruction_set_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Tile._hold

    def forced(self: Tile, core: _core.Tile) -> None:
        hold(self, core)
        core.instruction_set = "V2"

    monkeypatch.setattr(Tile, "_hold", forced)
    best = _core.instruction_sets()[-1]
    assert f"instruction sets: tiles use V2; the best that was found is {best}" in fault()


@pytest.mark.usefixtures("few")
def test_fault_2_an_instruction_set_computes_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    forward, worst = Tile.forward, _core.instruction_sets()[0]

    def wrong(self: Tile, x: Matrix, **named: int) -> Matrix:
        y = forward(self, x, **named)
        return np.nextafter(y, np.inf) if self._core.instruction_set == worst else y

    monkeypatch.setattr(Tile, "forward", wrong)
    assert f"golden bits, {worst}: compounds/lrtt differs" in fault()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("mapped", "driver", "expected"),
    [
        ({("libcublas", 12): "/a/libcublas.so.12"}, 13, "needs libcublas 13; this process has lib"),
        ({}, 13, "needs libcublas 13; this process has none"),
        ({("libcublas", 13): "/a/libcublas.so.13"}, 12, "of CUDA 13; the driver runs CUDA 12"),
        (
            {
                ("libcublas", 13): "/a/libcublas.so.13",
                ("libcublasLt", 13): "/b/libcublasLt.so.13",
            },
            13,
            "/a/libcublas.so.13 and /b/libcublasLt.so.13 are of two installations",
        ),
    ],
)
def test_fault_3_a_mismatched_cuda_library(
    mapped: dict[tuple[str, int], str],
    driver: int,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "core_libraries", lambda: {"libcublas": 13})
    monkeypatch.setattr(machine, "mapped_libraries", lambda: mapped)
    monkeypatch.setattr(machine, "driver_version", lambda: driver)
    text = fault()
    assert "CUDA libraries: " in text
    assert expected in text


def test_sound_cuda_libraries_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = {("libcublas", 13): "/a/libcublas.so.13", ("libcublasLt", 13): "/a/libcublasLt.so.13"}
    monkeypatch.setattr(machine, "core_libraries", lambda: {"libcublas": 13})
    monkeypatch.setattr(machine, "mapped_libraries", lambda: mapped)
    monkeypatch.setattr(machine, "driver_version", lambda: 13)
    assert machine.library_faults() == []
    monkeypatch.setattr(_core, "__version__", "0.1.0+cu12")
    assert "the core is of CUDA 12 and was linked with libcublas 13" in machine.library_faults()


@pytest.mark.usefixtures("few")
def test_fault_4_a_changed_default(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = copy.deepcopy(_core.schema())
    (field,) = (one for one in schema["devices"]["SoftBounds"]["fields"] if one["name"] == "dw_min")
    assert field["default"] == 0.001
    field["default"] = 0.002
    monkeypatch.setattr(_core, "schema", lambda: schema)
    expected = "parameter defaults: devices.SoftBounds.dw_min is 0.002 (golden 0.001)"
    assert expected in fault()


@pytest.mark.usefixtures("few")
def test_fault_5_a_state_that_is_not_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tile, "load_state", lambda *_: None)
    text = fault()
    assert "resume: from a state: " in text
    assert "from a file" not in text


@pytest.mark.usefixtures("few")
def test_fault_5_a_file_that_loads_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Tile.load

    def wrong(path: Path) -> Tile:
        tile = load(path)
        tile.weights = np.nextafter(tile.weights, np.float32(0.0))
        return tile

    monkeypatch.setattr(Tile, "load", wrong)
    assert "resume: from a file: " in fault()


@pytest.mark.usefixtures("few")
def test_fault_6_a_result_that_depends_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    backward = Tile.backward

    def wrong(self: Tile, d: Matrix, **named: int) -> Matrix:
        dx = backward(self, d, **named)
        return np.nextafter(dx, np.inf) if self.threads == 2 else dx

    monkeypatch.setattr(Tile, "backward", wrong)
    text = fault()
    assert "threads: 2 threads: " in text
    assert "golden bits" not in text


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("lost", ["nn/conv.py", "_internal/checks.py", "fit/table.py"])
def test_fault_7_a_missing_module(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pulsora"
    shutil.copytree(machine.PACKAGE, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    assert machine.module_faults(package) == []
    (package / lost).unlink()
    monkeypatch.setattr(machine, "PACKAGE", package)
    name = "pulsora." + lost.removesuffix(".py").replace("/", ".")
    assert f"modules: {name} is missing" in fault()


@pytest.mark.usefixtures("few")
def test_fault_7_a_damaged_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "pulsora"
    package.mkdir()
    (package / "__init__.py").write_text("def half(")
    monkeypatch.setattr(machine, "PACKAGE", package)
    assert "modules: pulsora.__init__ cannot be read" in fault()


@pytest.mark.usefixtures("few")
def test_fault_8_another_version_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    python = _core.__version__
    monkeypatch.setattr(_core, "__version__", "9.8.7")
    assert f"versions: the core is of version 9.8.7, the Python files are of {python}" in fault()


@pytest.mark.usefixtures("few")
def test_fault_8_a_core_that_lacks_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_core, "truncated_svd")
    assert "versions: the core lacks truncated_svd, which the Python files name" in fault()


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "other"])
def test_fault_9_a_damaged_golden_file(damage: str, few: Path) -> None:
    text = few.read_text()
    if damage == "missing":
        few.unlink()
    else:
        made = {"cut": text[:-200], "changed": text.replace("0.001", "0.002", 1), "other": "[]"}
        few.write_text(made[damage])
    told = "cannot be read" if damage == "missing" else "is damaged"
    assert f"golden file: GoldenError: golden.json {told}" in fault()


@pytest.mark.usefixtures("few")
def test_fault_10_a_wrong_noise_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_models, "PCMLike", noise_models.Hermes)
    assert "noise_models/PCMLike differs" in fault()


@pytest.mark.usefixtures("few")
def test_fault_11_a_gpu_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "cuda_device_count", lambda: 1)

    def refuse() -> None:
        raise _core.DeviceError("the GPU fell off the bus")

    make = _core.make_tile
    monkeypatch.setattr(_core, "make_tile", lambda *a: refuse() if "cuda:0" in a else make(*a))
    assert "GPU 0 = CPU: compounds/lrtt: DeviceError: the GPU fell off the bus" in fault()


@pytest.mark.usefixtures("few")
def test_fault_12_a_check_that_fails_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise OSError("no such processor")

    monkeypatch.setattr(machine, "cpu_flags", fails)
    text = fault()
    assert "OSError: no such processor" in text
    assert "golden bits" not in text  # the other checks ran


def test_a_case_depends_on_no_thread_and_no_earlier_case() -> None:
    first = hash_of("compounds/lrtt", Place())
    hash_of("compounds/vector", Place())
    assert hash_of("compounds/lrtt", Place(threads=3)) == first


def test_a_verdict_names_three_faults_of_a_check() -> None:
    bad = Check("bits", ("a differs", "b differs", "c differs", "d differs", "e differs"))
    result = SelfTest((Check("fine"), bad))
    assert result.verdict == "FAULT: bits: a differs; b differs; c differs; and 2 more"
    assert "e differs" in str(result)


@pytest.mark.usefixtures("few")
def test_the_command_writes_a_file_and_fails_with_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "report.json"
    arguments = ["selftest", "--no-speed", "--out", str(out)]
    good = CliRunner().invoke(app, arguments)
    assert good.exit_code == 0, good.output
    report = json.loads(out.read_text())
    assert report["ok"] is True
    assert report["machine"]["pulsora"] == pl.__version__
    assert report["machine"]["instruction sets"] == _core.instruction_sets()
    monkeypatch.setattr(noise_models, "PCMLike", noise_models.Hermes)
    bad = CliRunner().invoke(app, arguments)
    assert bad.exit_code == 1
    assert "FAULT: golden bits" in bad.output
    report = json.loads(out.read_text())
    assert report["ok"] is False
    assert any("PCMLike" in one for check in report["checks"] for one in check["faults"])


@pytest.mark.usefixtures("few")
def test_speeds_stand_beside_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsora.verification.speed._SIZE", 32)
    (check,) = (one for one in selftest().checks if one.name == "speed, cpu")
    assert check.ok
    assert "update dense " in check.note
    assert f"{_core.instruction_sets()[-1]} in the table" in check.note
