"""Device models from source: what they are, what is refused, what a saved state carries of them."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pulsora as pl
from conftest import ROOT, make_batch, make_tile, same_bits, train
from device_workshop import EXAMPLE, KINDS_OF_PULSES, SETTINGS, Workshop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler"),
    pytest.mark.xdist_group("device source"),  # which share what is compiled once
]

BUILT_IN = ROOT / "src" / "rpucuda" / "devices" / "soft_bounds.h"
COPY = BUILT_IN.read_text().replace("SoftBounds", "SoftBoundsCopy")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULSORA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("CXX", raising=False)
        yield patch


@pytest.fixture
def unoptimised(
    environment: pytest.MonkeyPatch,  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A compiler that takes a quarter of the time, for tests of all but bits."""
    monkeypatch.setenv("CXX", str(Workshop(tmp_path).compiler))


@pytest.fixture(scope="module")
def copy(environment: pytest.MonkeyPatch) -> type[pl.devices.Device]:  # noqa: ARG001
    """SoftBounds under another name, from its own text, optimised as the built-in one is."""
    return pl.devices.from_source(COPY)


@pytest.mark.parametrize("pulse_noise", ["closed_form", "sequential"])
@pytest.mark.parametrize(("pulse_type", "length"), KINDS_OF_PULSES)
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
        {"dw_min": -1.0}, {"dw_mim": 1.0}, {"w_max": 0.0, "w_min": 0.0},
        {"noise_merge": "batch", "pulse_noise": "sequential"},
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


@pytest.mark.usefixtures("unoptimised")
def test_a_text_may_include_public_headers() -> None:
    names = ("math.h", "random.h", "devices/range_response.h")
    included = "\n".join(["#pragma once", *(f"#include <pulsora/{name}>" for name in names)])
    text = COPY.replace("SoftBoundsCopy", "SoftBoundsIncludes")
    assert text.count("#pragma once") == 1
    text = text.replace("#pragma once", included)
    assert pl.devices.from_source(text)().dw_min == pl.devices.SoftBounds().dw_min


@pytest.mark.usefixtures("unoptimised")
def test_texts_by_the_earlier_names_compile() -> None:
    text = COPY.replace("SoftBoundsCopy", "SoftBoundsEarlier")
    text = text.replace("pulsora", "RPU").replace("PULSORA_HD", "RPU_HD")
    assert "namespace RPU" in text
    assert pl.devices.from_source(text)().dw_min == pl.devices.SoftBounds().dw_min


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
    with pytest.raises(TypeError, match="name is of type int; pass the name of the struct"):
        pl.devices.from_source("a\nb", name=3)  # type: ignore[arg-type]


def test_a_mistake_is_told_with_its_line(
    environment: pytest.MonkeyPatch,  # noqa: ARG001
    tmp_path: Path,
) -> None:
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
    assert len(promises) == 10
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
    coarse = text.replace("stepAtZero<BackwardStep>(p)", "2.0f * p.dw_min").replace(
        "BackwardStep", "CoarseStep"
    )
    assert coarse != text
    with pytest.raises(
        pl.devices.ContractError, match=r"by 0\.5 lr.*return stepAtZero<CoarseStep>"
    ):
        pl.devices.check(pl.devices.from_source(coarse))
    with pytest.raises(pl.devices.ContractError, match="w_max of cells without spread is 60"):
        pl.devices.check(made(perfect_bias=True))
