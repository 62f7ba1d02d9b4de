"""Noise models from source and from tables: what they are, their bits, what is refused."""

from __future__ import annotations

import hashlib
import os
import pickle
import runpy
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import ROOT, same_bits
from device_workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

needs_compiler = pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
pytestmark = pytest.mark.xdist_group("device source")  # which share what is compiled once

HEADERS = ROOT / "src" / "rpucuda" / "noise_models"
EXAMPLE = ROOT / "examples" / "27_custom_noise_model"
TEXT = (EXAMPLE / "stretched_loss.h").read_text()
BUILT_IN = {"PCMLike": "pcm_like.h", "Shift": "shift.h", "Exponential": "exponential.h"}
SETTINGS: dict[str, dict[str, Any]] = {
    "PCMLike": {},
    "Shift": {
        "times": [1.0, 1e4], "shift": [0.0, 0.1, -0.5, -2.0], "sigma": [0.2, 0.3, 0.5, 1.0],
        "persistence": 0.4, "extrapolate": True,
    },
    "Exponential": {
        "rest": 12.0, "sigma": [0.2, 0.4], "tau": [3e3, 1e5], "tau_std": [0.1, 0.3],
        "read_noise": [0.02, 0.01],
    },
}  # fmt: skip
CELLS: dict[str, dict[str, Any]] = {
    "pair": {}, "two_sided_pair": {}, "pairs": {"significance": [1.0, 4.0]}, "single": {},
    "slices": {"weight_bits": 6, "slice_bits": 2},
    "table": {"table_w": [-1.0, 0.0, 1.0], "table_g": [0.0, 0.25, 1.0, 1.0, 0.25, 0.0]},
}  # fmt: skip
AGED = ("pair", "two_sided_pair", "single")  # cells of arrays that pulses have trained


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULSORA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("CXX", raising=False)
        yield patch


@pytest.fixture(scope="module")
def own(environment: pytest.MonkeyPatch) -> type[pl.noise_models.NoiseModel]:  # noqa: ARG001
    if not shutil.which("c++"):
        pytest.skip("needs a C++ compiler")
    return pl.noise_models.from_source(EXAMPLE / "stretched_loss.h")


def programmed(model: pl.noise_models.NoiseModel, **settings: Any) -> pl.Tile:
    """A tile with one programming of some weights."""
    threads = settings.pop("threads", 1)
    config = pl.InferenceConfig(noise_model=model, stuck_low=0.03, stuck_high=0.02, **settings)
    tile = pl.Tile(33, 41, config, seed=5, tile_id=2, threads=threads)
    tile.weights = np.random.default_rng(1).normal(size=(33, 41)).astype(np.float32)
    tile.programming.program(number=3)
    return tile


def seen(tile: pl.Tile, time: float, redraw: int = 0) -> list[np.ndarray]:
    tile.programming.drift(time, redraw=redraw)
    return [
        tile.weights,
        *(tile.programming.conductances(which) for which in ("target", "programmed", "now")),
    ]


@needs_compiler
@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.usefixtures("environment")
def test_a_model_from_source_has_the_bits_of_the_same_built_in(name: str, cell: str) -> None:
    text = (HEADERS / BUILT_IN[name]).read_text().replace(name, f"{name}Copy")
    copied = pl.noise_models.from_source(text, f"{name}Copy")
    built_in = getattr(pl.noise_models, name)
    assert copied._fields == built_in._fields
    assert copied.__doc__ == built_in.__doc__
    for time in (0.0, 3600.0):
        one, other = (
            seen(programmed(made(**SETTINGS[name]), cell=cell, **CELLS[cell]), time)
            for made in (built_in, copied)
        )
        assert same_bits(one, other)
    if cell in AGED:
        one, other = (aged(m(**SETTINGS[name]), retention_cell=cell) for m in (built_in, copied))
        assert same_bits([one], [other])


def aged(model: pl.noise_models.NoiseModel, **settings: Any) -> np.ndarray:
    """The weights of an array that pulses have trained, an hour later."""
    tile = pl.Tile(9, 13, pl.SingleConfig(retention=model, **settings), seed=5, threads=1)
    tile.update(np.ones((3, 13)), np.linspace(-1.0, 1.0, 27).reshape(3, 9), 0.3)
    before = tile.weights.copy()
    tile.retention.drift(3600.0)
    assert not np.array_equal(before, tile.weights)
    return tile.weights


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", [*pl.noise_models.MODELS, "StretchedLoss"])
def test_property_61_a_realisation_is_a_function_for_every_model(
    name: str, cell: str, own: type[pl.noise_models.NoiseModel]
) -> None:
    settings = {"cell": cell, **CELLS[cell]}
    made = own if name == "StretchedLoss" else getattr(pl.noise_models, name)
    model = made(**SETTINGS.get(name, {}))
    times = (0.0, 60.0, 1.0, 80000.0)
    wanted = {time: seen(programmed(model, **settings), time, 1) for time in times}
    tile = programmed(model, threads=3, **settings)
    for time in (80000.0, 1.0, 60.0, 1.0, 0.0, 80000.0):
        assert same_bits(seen(tile, time, 1), wanted[time])
        seen(tile, 5.0, 2)
        tile.forward(np.ones((2, 41), dtype=np.float32))
    again = pl.Tile.from_state(tile.state())
    again.programming.program(number=8)
    again.programming.program(number=3)
    assert same_bits(seen(again, 60.0, 1), wanted[60.0])
    # Programmings and times together, as an evaluation makes them, and alone.
    x = np.random.default_rng(2).normal(size=(2, 41)).astype(np.float32)
    alone = []
    for number, time in ((3, 1.0), (4, 60.0)):
        tile.programming.program(number=number)
        tile.programming.drift(time)
        alone.append(tile.forward(x))
    tile._core.program_many([(3, 1.0), (4, 60.0)], 0)
    together = tile.forward(np.concatenate([x, x]))
    assert same_bits([together], [np.concatenate(alone)])


@pytest.mark.parametrize("cell", CELLS)
def test_a_model_from_source_follows_its_formulas(
    cell: str, own: type[pl.noise_models.NoiseModel]
) -> None:
    model = own(loss=0.25, tau=500.0, beta=0.5, loss_std=0.0, prog_std=0.0, read_std=0.0)
    config = pl.InferenceConfig(noise_model=model, compensation="none", cell=cell, **CELLS[cell])
    tile = pl.Tile(40, 50, config, seed=1)
    tile.weights = np.random.default_rng(0).uniform(-1, 1, (40, 50))
    tile.programming.program()
    target = tile.programming.conductances("target").astype(np.float64)
    for time in (0.0, 10.0, 500.0, 1e6):
        left = 1 - 0.25 * (1 - np.exp(-np.sqrt(time / 500.0)))
        tile.programming.drift(time)
        assert np.allclose(tile.programming.conductances(), target * left, rtol=1e-5, atol=1e-6)


def test_a_model_from_source_has_the_moments_of_its_formulas(
    own: type[pl.noise_models.NoiseModel],
) -> None:
    # N = 4000 devices around 10 uS: mean and deviation within 5 standard errors.
    noisy = own(loss=0.25, tau=500.0, beta=0.5, loss_std=0.1, prog_std=0.02, read_std=0.0)
    tile = pl.Tile(1, 4001, pl.InferenceConfig(noise_model=noisy, cell="single"), seed=1)
    weights = np.full((1, 4001), -0.2, dtype=np.float32)
    weights[0, -1] = 1.0
    tile.weights = weights
    tile.programming.program()
    tile.programming.drift(500.0)
    g = tile.programming.conductances()[0, :-1, 0].astype(np.float64)
    left = 1 - 0.25 * (1 - np.exp(-1))
    deviation = np.hypot(0.5 * left, 10.0 * 0.1 * (1 - np.exp(-1)))
    assert abs(g.mean() - 10.0 * left) < 5 * deviation / np.sqrt(g.size)
    assert abs(g.std() / deviation - 1) < 5 / np.sqrt(2 * g.size)


def test_its_class_is_like_a_built_in_one(own: type[pl.noise_models.NoiseModel]) -> None:
    assert own is pl.noise_models.StretchedLoss
    assert own.source_sha256 == hashlib.sha256(TEXT.encode()).hexdigest()
    model = own(loss=0.25)
    assert repr(model) == "StretchedLoss(loss=0.25)"
    assert pl.noise_models.NoiseModel.from_dict(model.to_dict()) == model
    assert pickle.loads(pickle.dumps(model)) == model  # noqa: S301
    config = pl.InferenceConfig(noise_model=model)
    assert pl.TileConfig.from_dict(config.to_dict()) == config
    assert pl.presets.noise_model("StretchedLoss") == own()
    assert pl.presets.noise_model(model.to_dict()) == model
    for values in ({"g_min": 30.0}, {"loss": 2.0}, {"lost": 1.0}, {"beta": 0.0}):
        with pytest.raises(pl.ConfigError, match=f"StretchedLoss.*{next(iter(values))}"):
            own(**values)
    assert pl.noise_models.from_source(TEXT.replace("\n", "\r\n")) is own


def test_the_properties_of_read_windows_are_checked(own: type[pl.noise_models.NoiseModel]) -> None:
    with pytest.raises(pl.ConfigError, match="StretchedLoss, has no 1/f noise"):
        pl.InferenceConfig(noise_model=own(), read_window=1.0)


@needs_compiler
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("static float readSigma(", "static float sigma(", "needs: PULSORA_HD static float readS"),
        ("static float limited(", "static float bounded(", "needs: .* limited"),
        ("static Time timeOf(", "static Time placeOfTime(", "needs: a struct Time"),
        ("static double lastTime(", "static double endTime(", "needs: static double lastTime"),
        ("#include <cmath>", '#include "other.h"', r"other\.h"),
        ("p.loss_std, xi.kept", "p.loss_sdt, xi.kept", r"Lacking\.h:\d+:\d+: error: .*loss_sdt"),
    ],
)
@pytest.mark.usefixtures("environment")
def test_what_is_missing_is_named(old: str, new: str, message: str) -> None:
    text = TEXT.replace("StretchedLoss", "Lacking").replace(old, new)
    with pytest.raises(pl.CompileError, match=message):
        pl.noise_models.from_source(text)
    assert not hasattr(pl.noise_models, "Lacking")


def test_a_name_that_is_taken_is_refused(own: type[pl.noise_models.NoiseModel]) -> None:
    made = pl.noise_models.from_source
    with pytest.raises(pl.ConfigError, match="'StretchedLoss' from another source already"):
        made(TEXT + "// changed\n")
    with pytest.raises(pl.ConfigError, match="built-in noise model 'Exponential'"):
        made((HEADERS / "exponential.h").read_text())
    with pytest.raises(pl.ConfigError, match=r"devices\.SoftBounds is a device model already"):
        made(TEXT.replace("StretchedLoss", "SoftBounds"))
    with pytest.raises(pl.ConfigError, match=r"noise_models\.StretchedLoss is a noise model alre"):
        pl.devices.from_source(TEXT)
    with pytest.raises(pl.ConfigError, match="source of a noise model has no `static"):
        made("struct X {};\n")
    with pytest.raises(pl.ConfigError, match=r"known after pulsora\.noise_models\.from_source"):
        pl.noise_models.NoiseModel.from_dict({"model": "Unknown"})
    with pytest.raises(FileNotFoundError, match="source = 'nowhere"):
        made("nowhere.h")
    assert pl.noise_models.StretchedLoss is own


LOADER = """
import json, sys
import pulsora as pl
try:
    tile = pl.Tile.load(sys.argv[1], trust_device_source={trusted})
    print(json.dumps({{"weights": tile.weights.tobytes().hex(), **pl.devices.compile_counts()}}))
except pl.StateError as error:
    print(json.dumps({{"error": str(error), **pl.devices.compile_counts()}}))
"""


def test_loading_runs_no_code_unless_that_is_asked_for(
    own: type[pl.noise_models.NoiseModel], tmp_path: Path
) -> None:
    tile = programmed(own())
    tile.programming.drift(100.0)
    path = tmp_path / "tile.safetensors"
    tile.save(path)
    sources = tile.state().values["noise_model_sources"]
    assert sources == {"StretchedLoss": {"sha256": own.source_sha256, "source": TEXT}}
    assert same_bits([pl.Tile.load(path).weights], [tile.weights])
    workshop = Workshop(tmp_path)
    changes = {"PULSORA_CACHE_DIR": os.environ["PULSORA_CACHE_DIR"], "CXX": ""}
    report = workshop.run(path, LOADER.format(trusted=False), **changes)
    assert f"'StretchedLoss' from the source with SHA-256 {own.source_sha256}" in report["error"]
    assert "pulsora.noise_models.from_source" in report["error"]
    assert (report["compiled"], report["from_disk"]) == (0, 0)
    report = workshop.run(path, LOADER.format(trusted=True), **changes)
    assert report["weights"] == tile.weights.tobytes().hex()
    assert (report["compiled"], report["from_disk"]) == (0, 1)
    saved = tile.state()
    saved.values["noise_model_sources"] = {
        "StretchedLoss": {"sha256": own.source_sha256, "source": TEXT + "\n"}
    }
    pl.state.save(saved.signed(), path)
    for trusted in (False, True):
        with pytest.raises(pl.StateError, match="noise model 'StretchedLoss' does not have the S"):
            pl.Tile.load(path, trust_device_source=trusted)


@needs_compiler
def test_the_example_runs(
    environment: pytest.MonkeyPatch,  # noqa: ARG001
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch")
    runpy.run_path(str(EXAMPLE / "drift.py"))
    said = capsys.readouterr().out
    assert "StretchedLoss(loss=0.4, beta=0.3)" in said
    assert said.count("1 year") == 2


def test_a_table_is_interpolated() -> None:
    nodes, sigma, nu = [2.0, 5.0, 20.0], [0.2, 0.8, 0.5], [0.1, 0.05, 0.02]
    model = pl.noise_models.from_table(nodes, sigma=sigma, nu_mean=nu, g_max=25.0, t_0=10.0)
    assert (model.model, model.g_max, model.t_0) == ("PowerLaw", 25.0, 10.0)
    assert model.read_noise == (0.0, 0.0, 0.0)
    exact = model.replace(prog_noise_scale=0.0)
    config = pl.InferenceConfig(noise_model=exact, compensation="none", scaling_per="tile")
    tile = pl.Tile(8, 60, config, seed=3)
    tile.weights = np.random.default_rng(0).uniform(0, 1, (8, 60))
    tile.programming.program()
    target = tile.programming.conductances("target").astype(np.float64)
    tile.programming.drift(90.0)
    wanted = target * 10.0 ** -np.interp(target, nodes, nu)
    assert np.allclose(tile.programming.conductances(), wanted, rtol=2e-6, atol=1e-6)
    # 4000 devices at 9 uS: the programming error within 5 standard errors.
    config = pl.InferenceConfig(noise_model=model, compensation="none")
    tile = pl.Tile(1, 4001, config, seed=1)
    weights = np.full((1, 4001), 9.0 / 25.0, dtype=np.float32)
    weights[0, -1] = 1.0
    tile.weights = weights
    tile.programming.program()
    g = tile.programming.conductances("programmed")[0, :-1, 0].astype(np.float64)
    wanted_sigma = np.interp(9.0, nodes, sigma)
    assert abs(g.std() / wanted_sigma - 1) < 5 / np.sqrt(2 * g.size)
    assert pl.noise_models.from_table([7.0], sigma=[0.1]).g == (1.0,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"g": [1.0, 1.0]}, r"g\[1\] is 1, not above g\[0\] = 1"),
        ({"g": []}, "g has 0 numbers"),
        ({"g": list(range(65))}, "g has 65 numbers; give 1 to 64"),
        ({"g": [1.0, np.nan]}, r"g\[1\] is nan"),
        ({"g": [-1.0, 1.0]}, "reaches from -1 to 1 uS"),
        ({"g": [0.0]}, "g_max above 0"),
        ({"g_max": 3.0}, "g_max is 3 uS"),
        ({"sigma": [0.1]}, "sigma has 1 numbers, and g has 2"),
        ({"sigma": [0.1, -0.1]}, r"sigma\[1\] is -0.1; give a deviation"),
        ({"nu_std": [[0.1, 0.1]]}, "nu_std must be a list of numbers"),
        ({"read_noise": "loud"}, "read_noise must be a list of numbers"),
    ],
)
def test_bad_tables_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pl.noise_models.from_table(**{"g": [1.0, 5.0], **settings})
