"""Device models from source: what they are, where compiled ones are kept, what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import PLAIN_COMPILER, ROOT, make_batch, make_tile, same_bits, train

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler"),
    pytest.mark.xdist_group("device source"),  # which share what is compiled once
]

EXAMPLE = ROOT / "examples" / "05_custom_device" / "quadratic_step.h"
BUILT_IN = ROOT / "src" / "rpucuda" / "devices" / "soft_bounds.h"
COPY = BUILT_IN.read_text().replace("SoftBounds", "SoftBoundsCopy")

# Makes a device and prints what came of it.
CHILD = """
import json, sys, warnings
import pulsora as pl
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    try:
        made = pl.devices.from_source(sys.argv[1])
        tile = pl.Tile(2, 3, pl.SingleConfig(device=made()))
        error = ""
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
print(json.dumps({"error": error, "warnings": [str(w.message) for w in seen], **pl.devices.compile_counts()}))
"""


class Workshop:
    """A cache folder, a compiler, and processes that use them."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.log = folder / "log"
        self.compiler = folder / "compiler"
        self.compiler.write_text(PLAIN_COMPILER)
        self.compiler.chmod(0o700)

    def environment(self, **changes: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "PULSORA_CACHE_DIR": str(self.cache),
            "PULSORA_TEST_LOG": str(self.log),
            "CXX": str(self.compiler),
            **changes,
        }

    def start(self, source: Path, program: str = CHILD, **changes: str) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", program, str(source)],
            env=self.environment(**changes), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, source: Path, program: str = CHILD, **changes: str) -> dict[str, Any]:
        return finished(self.start(source, program, **changes))

    def compilations(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


def finished(child: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = child.communicate(timeout=300)
    assert child.returncode == 0
    return dict(json.loads(output))


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One whose folder has the compiled example, made by three processes that started at once."""
    made = Workshop(tmp_path_factory.mktemp("workshop"))
    reports = [finished(child) for child in [made.start(EXAMPLE) for _ in range(3)]]
    assert [report["error"] for report in reports] == [""] * 3
    assert sorted(report["compiled"] for report in reports) == [0, 0, 1]
    assert sorted(report["from_disk"] for report in reports) == [0, 1, 1]
    assert made.compilations() == 1
    return made


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULSORA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("CXX", raising=False)
        yield patch


@pytest.fixture(scope="module")
def copy(environment: pytest.MonkeyPatch) -> type[pl.devices.Device]:  # noqa: ARG001
    """SoftBounds under another name, from its own text, optimised as the built-in one is."""
    return pl.devices.from_source(COPY)


SETTINGS: dict[str, Any] = {"dw_min": 0.004, "corrupt_devices_prob": 0.05, "w_max_dtod": 0.2}


@pytest.mark.parametrize("pulse_noise", ["closed_form", "sequential"])
@pytest.mark.parametrize(
    ("pulse_type", "length"),
    [
        *(("stochastic_compressed", length) for length in (1, 3, 8, 31, 40)),
        ("stochastic", 31), ("mean_count", 31), ("deterministic_implicit", 31),
        ("none", 31), ("none_with_device", 31),
    ],
)  # fmt: skip
def test_a_model_from_source_has_the_bits_of_the_same_built_in(
    copy: type[pl.devices.Device], pulse_type: str, length: int, pulse_noise: str
) -> None:
    update = pl.UpdateParameters.from_dict({"pulse_type": pulse_type, "desired_bl": length})
    seen = []
    for made, cut in ((pl.devices.SoftBounds, 0), (copy, 0), (copy, 4)):
        device = made(
            **SETTINGS, pulse_noise=pulse_noise, lifetime=30.0, diffusion=1e-3, write_noise_std=0.5
        )
        tile = pl.Tile(67, 130, pl.SingleConfig(device=device, update=update), seed=3)
        rng = np.random.default_rng(1)
        for _ in range(3):
            x = rng.normal(size=(9, 130)).astype(np.float32)
            d = 0.2 * rng.normal(size=(9, 67)).astype(np.float32)
            if cut:
                tile.update(x[:cut], d[:cut], 0.5, end_of_batch=False)
            tile.update(x[cut:], d[cut:], 0.5)
        tile.reset_columns("visible", 3, 10)
        seen.append([tile.weights, *tile.describe_cells().values()])
    assert same_bits(seen[0], seen[1])
    assert same_bits(seen[0], seen[2])


def test_it_has_the_built_in_bits_in_an_adapter(copy: type[pl.devices.Device]) -> None:
    seen = []
    for made in (pl.devices.SoftBounds, copy):
        config = pl.LRTTConfig(
            rank=3, visible=made(**SETTINGS), fast=made(dw_min=2e-4), transfer_every=7
        )
        seen.append(train(make_tile(config), 20))
    assert same_bits(*seen)


def test_its_class_is_like_a_built_in_one(copy: type[pl.devices.Device]) -> None:
    assert copy.__name__ == "SoftBoundsCopy"
    assert copy is pl.devices.SoftBoundsCopy
    assert copy._fields == pl.devices.SoftBounds._fields
    assert copy.source_sha256 == hashlib.sha256(COPY.encode()).hexdigest()
    device = copy(dw_min=0.002)
    assert repr(device) == "SoftBoundsCopy(dw_min=0.002)"
    assert pl.devices.Device.from_dict(device.to_dict()) == device
    assert pickle.loads(pickle.dumps(device)) == device  # noqa: S301
    assert pl.presets.device("softboundscopy", dw_min=0.002) == device
    for values in (
        {"dw_min": -1.0}, {"dw_mim": 1.0}, {"w_max": 0.0, "w_min": 0.0}, {"noise_merge": "batch"},
        {"pulse_noise": "no"}, {"perfect_bias": 3}, {"construction_seed": 0.5},
    ):  # fmt: skip
        messages = []
        for made in (pl.devices.SoftBounds, copy):
            with pytest.raises(pl.ConfigError) as refused:
                made(**values)
            messages.append(str(refused.value).replace("SoftBoundsCopy", "SoftBounds"))
        assert messages[0] == messages[1]


def test_the_same_text_is_the_same_class(copy: type[pl.devices.Device]) -> None:
    before = pl.devices.compile_counts()
    assert pl.devices.from_source(COPY.replace("\n", "\r\n"), name="SoftBoundsCopy") is copy
    after = pl.devices.compile_counts()
    assert after == {**before, "from_memory": before["from_memory"] + 1}


def test_a_name_that_is_taken_is_refused(copy: type[pl.devices.Device]) -> None:
    with pytest.raises(pl.ConfigError, match="'SoftBoundsCopy' from another source already"):
        pl.devices.from_source(COPY + "// changed\n")
    with pytest.raises(pl.ConfigError, match="built-in device model 'SoftBounds'"):
        pl.devices.from_source(BUILT_IN.read_text())
    with pytest.raises(pl.ConfigError, match=r"pulsora\.devices\.EcRam is something else"):
        pl.devices.from_source(COPY.replace("SoftBoundsCopy", "EcRam"))
    assert pl.devices.SoftBoundsCopy is copy


def test_a_text_without_a_plain_name_is_refused() -> None:
    with pytest.raises(pl.ConfigError, match="has no `static constexpr const char \\*kName"):
        pl.devices.from_source("struct X {};\n")
    with pytest.raises(pl.ConfigError, match=r"has the names 'Other', 'SoftBoundsCopy'; .* name="):
        pl.devices.from_source(COPY + '// kName = "Other"\n')
    with pytest.raises(pl.ConfigError, match="name is 'soft bounds'"):
        pl.devices.from_source(COPY, name="soft bounds")
    for call in (pl.devices.from_source, pl.devices.compile_ahead):
        with pytest.raises(FileNotFoundError, match=r"source = 'nowhere\.h' .*give the path of"):
            call("nowhere.h")
    with pytest.raises(IsADirectoryError, match=r"source = '/' cannot be read \(Is a directory\)"):
        pl.devices.from_source("/")
    with pytest.raises(TypeError, match="source is of type int"):
        pl.devices.from_source(3)  # type: ignore[arg-type]


def test_a_mistake_is_told_with_its_line(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:  # noqa: ARG001
    text = EXAMPLE.read_text().replace("p.dw_min_std, xi", "p.dw_min_sdt, xi")
    text = text.replace("QuadraticStep", "BadStep")
    line = next(i for i, row in enumerate(text.splitlines(), 1) if "dw_min_sdt" in row)
    path = tmp_path / "bad_step.h"
    path.write_text(text)
    with pytest.raises(pl.CompileError, match=rf"(?m)^bad_step\.h:{line}:\d+: error: .*dw_min_sdt"):
        pl.devices.from_source(path)
    with pytest.raises(pl.CompileError, match=rf"(?m)^BadStep\.h:{line}:\d+: error: "):
        pl.devices.from_source(text)
    assert not hasattr(pl.devices, "BadStep")


def test_a_missing_function_is_named(environment: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    text = EXAMPLE.read_text().replace("QuadraticStep", "LackingStep")
    text = text.replace("static float granularity(", "static float fineness(")
    with pytest.raises(pl.CompileError, match="needs: static float granularity"):
        pl.devices.from_source(text)


def test_a_second_start_compiles_nothing(workshop: Workshop) -> None:
    before = workshop.compilations()
    report = workshop.run(EXAMPLE)
    assert report == {
        "error": "", "warnings": [], "compiled": 0, "from_disk": 1, "from_memory": 0,
    }  # fmt: skip
    assert workshop.compilations() == before


def test_a_compiled_model_needs_no_compiler(workshop: Workshop, tmp_path: Path) -> None:
    for changes in ({"CXX": "", "PATH": str(tmp_path)}, {"PULSORA_COMPILE": "never"}):
        report = workshop.run(EXAMPLE, **changes)
        assert (report["error"], report["from_disk"]) == ("", 1)


def test_without_a_compiler_it_is_said_what_to_install(workshop: Workshop, tmp_path: Path) -> None:
    nothing = {"PULSORA_CACHE_DIR": str(tmp_path / "empty")}
    error = workshop.run(EXAMPLE, **nothing, CXX="", PATH=str(tmp_path))["error"]
    assert error.startswith("CompilerNotFound: ")
    assert "neither c++ nor g++ nor clang++ is on PATH" in error
    assert "apt install g++" in error
    error = workshop.run(EXAMPLE, **nothing, CXX="no-such-compiler -v")["error"]
    assert error.startswith("CompilerNotFound: ")
    assert "CXX names the C++ compiler 'no-such-compiler', which is not there" in error
    error = workshop.run(EXAMPLE, **nothing, PULSORA_COMPILE="never")["error"]
    assert error.startswith("CompileError: ")
    assert "PULSORA_COMPILE is 'never'" in error
    assert "PULSORA_COMPILE is 'no'" in workshop.run(EXAMPLE, PULSORA_COMPILE="no")["error"]


def test_a_broken_file_is_made_anew_with_one_warning(workshop: Workshop) -> None:
    (file,) = workshop.cache.glob("*.plugin")
    whole = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert workshop.cache.stat().st_mode & 0o777 == 0o700
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    report = workshop.run(EXAMPLE)
    assert (report["error"], report["compiled"], report["from_disk"]) == ("", 1, 0)
    (warning,) = report["warnings"]
    assert f"{file} is damaged; it is removed and made anew" in warning
    assert workshop.run(EXAMPLE)["from_disk"] == 1
    file.chmod(0o666)
    assert "another user" in workshop.run(EXAMPLE, PULSORA_COMPILE="never")["warnings"][0]


def test_a_folder_that_cannot_be_written_is_done_without(workshop: Workshop) -> None:
    report = workshop.run(EXAMPLE, PULSORA_CACHE_DIR="/dev/null/cache")
    assert (report["error"], report["compiled"]) == ("", 1)
    (warning,) = report["warnings"]
    assert "cannot be stored in /dev/null/cache" in warning


def test_folders_of_others_are_refused(workshop: Workshop, tmp_path: Path) -> None:
    before = workshop.compilations()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    error = workshop.run(EXAMPLE, PULSORA_CACHE_DIR=str(shared))["error"]
    assert error.startswith(f"ConfigError: the cache folder {shared} may be written to by other")
    foreign = tmp_path / "foreign"
    foreign.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(foreign, 65534, 65534)
    else:
        foreign = ROOT.__class__("/usr")
    error = workshop.run(EXAMPLE, PULSORA_CACHE_DIR=str(foreign))["error"]
    assert error.startswith(f"ConfigError: the cache folder {foreign} belongs to another user")
    assert workshop.compilations() == before


LOADER = """
import json, sys
import pulsora as pl
saved, trusted = sys.argv[1], {trusted}
try:
    tile = pl.Tile.load(saved, trust_device_source=trusted)
    print(json.dumps({{"weights": tile.weights.tobytes().hex(), **pl.devices.compile_counts()}}))
except pl.StateError as error:
    print(json.dumps({{"error": str(error), **pl.devices.compile_counts()}}))
"""


def test_loading_runs_no_code_unless_that_is_asked_for(
    copy: type[pl.devices.Device], tmp_path: Path
) -> None:
    config = pl.LRTTConfig(rank=2, visible=copy(), fast=pl.devices.ConstantStep())
    tile = make_tile(config)
    tile.update(*make_batch(5), lr=0.05)
    path = tmp_path / "tile.safetensors"
    tile.save(path)
    sources = tile.state().values["device_sources"]
    assert sources == {"SoftBoundsCopy": {"sha256": copy.source_sha256, "source": COPY}}
    assert same_bits([pl.Tile.load(path).weights], [tile.weights])

    workshop = Workshop(tmp_path)
    changes = {"PULSORA_CACHE_DIR": os.environ["PULSORA_CACHE_DIR"], "CXX": ""}
    report = workshop.run(path, LOADER.format(trusted=False), **changes)
    assert f"'SoftBoundsCopy' from the source with SHA-256 {copy.source_sha256}" in report["error"]
    assert "no model of that name is registered" in report["error"]
    assert "pulsora.devices.from_source" in report["error"]
    assert "trust_device_source=True" in report["error"]
    assert (report["compiled"], report["from_disk"], report["from_memory"]) == (0, 0, 0)
    report = workshop.run(path, LOADER.format(trusted=True), **changes)
    assert report["weights"] == tile.weights.tobytes().hex()
    assert (report["compiled"], report["from_disk"]) == (0, 1)

    for entry, message in (
        ({"sha256": copy.source_sha256, "source": COPY + "\n"}, "does not have the SHA-256"),
        ({"sha256": "0" * 64, "source": COPY}, "does not have the SHA-256"),
        ("text", "lacks its text or its SHA-256|does not have the SHA-256"),
        (
            {"sha256": hashlib.sha256(COPY[:-1].encode()).hexdigest(), "source": COPY[:-1]},
            f"the model of that name has SHA-256 {copy.source_sha256}|from another source already",
        ),
    ):
        saved = tile.state()
        saved.values["device_sources"] = {"SoftBoundsCopy": entry}
        pl.state.save(saved.signed(), path)
        for trusted in (False, True):
            with pytest.raises(pl.StateError, match=message):
                pl.Tile.load(path, trust_device_source=trusted)
    saved = tile.state()
    del saved.values["device_sources"]
    with pytest.raises(pl.StateError, match="the state lacks 'device_sources'"):
        tile.load_state(saved.signed())


def test_the_contract_is_kept_by_models_from_source_and_built_in(
    copy: type[pl.devices.Device],
) -> None:
    promises = pl.devices.check(copy)
    assert len(promises) == 9
    assert pl.devices.check(pl.devices.ConstantStep(dw_min=0.01)) == promises
    with pytest.raises(TypeError, match="pass a class of pulsora"):
        pl.devices.check(pl.devices.Device)


def test_a_model_that_breaks_the_contract_is_told_so(
    environment: pytest.MonkeyPatch,  # noqa: ARG001
) -> None:
    text = EXAMPLE.read_text().replace("QuadraticStep", "BackwardStep")
    wrong = text.replace("r.step(up) *", "-r.step(up) *").replace(
        "PulsedCell common = sampleCell(p, draws, bias)",
        "PulsedCell common = sampleCell(p, draws, !bias)",
    )
    assert wrong != text
    made = pl.devices.from_source(wrong)
    with pytest.raises(pl.devices.ContractError, match="steps and their signs: a pulse up"):
        pl.devices.check(made)
    with pytest.raises(pl.devices.ContractError, match="w_max of cells without spread is 60"):
        pl.devices.check(made(perfect_bias=True))


def test_the_command_compiles_ahead(workshop: Workshop, tmp_path: Path) -> None:
    def pulsora(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603
            [sys.executable, "-m", "pulsora", "compile", *arguments],
            env=workshop.environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip

    before = workshop.compilations()
    done = pulsora(EXAMPLE)
    assert done.returncode == 0, done.stderr
    written = done.stdout.split("written: ")[1].strip()
    assert [written] == [str(path) for path in workshop.cache.glob("*.plugin")]
    assert workshop.compilations() <= before + 1
    bad = tmp_path / "bad.h"
    bad.write_text(EXAMPLE.read_text().replace("return {common", "return {comon"))
    done = pulsora(bad)
    assert done.returncode == 2
    assert "\nbad.h:" in done.stderr
    assert pulsora(EXAMPLE, "--isa", "V9").returncode == 2
