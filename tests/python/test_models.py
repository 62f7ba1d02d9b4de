"""Networks of experiments: data that they take or refuse, learning, and exact resume."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import pulsora as pl
from pulsora.cli import app
from pulsora.training.data import DataError, digits, text_file
from pulsora.training.experiment import MODELS, Experiment
from pulsora.training.models import Transformer, lenet, network
from pulsora.training.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from pulsora.training.data import Dataset

TEXT = "All cells of a row get the same pulses. " * 40
CASES = [(name, "digits") for name in MODELS] + [("lstm", "text"), ("transformer", "text")]
QUICK = {("lenet", "digits"), ("lstm", "text"), ("transformer", "digits")}
SOME = [case if case in QUICK else pytest.param(*case, marks=pytest.mark.nightly) for case in CASES]

needs_gpu = pytest.mark.skipif(
    not (torch.cuda.is_available() and pl.cuda_device_count() > 0),
    reason="no GPU that torch and this build of Pulsora can use",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    """Few digits, and a short text."""
    path = tmp_path_factory.mktemp("data") / "cells.txt"
    path.write_text(TEXT)
    made = digits()
    few = dataclasses.replace(
        made, train_x=made.train_x[:640], train_y=made.train_y[:640],
        test_x=made.test_x[:100], test_y=made.test_y[:100],
    )  # fmt: skip
    return {"digits": few, "text": text_file(path, 8)}


def trained(
    data: Dataset, out: Path | None = None, *, resume: bool = False, **settings: Any
) -> Run:
    run = Run(Experiment(**settings), out, threads=1, data=data, resume=resume)
    run.train()
    return run


def without_times(history: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{k: v for k, v in epoch.items() if k != "seconds"} for epoch in history]


@pytest.mark.parametrize(("model", "kind"), CASES)
def test_the_defaults_learn_in_the_first_epoch(
    model: str, kind: str, data: dict[str, Dataset]
) -> None:
    run = Run(Experiment(model=model, epochs=1), threads=1, data=data[kind])
    losses: list[float] = []
    (epoch,) = run.train(on_batch=losses.append)
    assert np.mean(losses[-3:]) < losses[0] - 0.15
    assert epoch["accuracy"] > 1.5 / data[kind].classes
    assert epoch["pulses"] > 0


@pytest.mark.parametrize(("model", "kind"), SOME)
def test_property_38_a_run_of_any_network_is_resumed_to_the_bit(
    model: str, kind: str, data: dict[str, Dataset], tmp_path: Path
) -> None:
    whole = data[kind]
    few = dataclasses.replace(whole, train_x=whole.train_x[:32], train_y=whole.train_y[:32])
    settings = {"model": model, "batch": 16, "transfer_every": 3}
    once = trained(few, epochs=2, **settings)
    trained(few, tmp_path, epochs=1, **settings)
    resumed = trained(few, tmp_path, resume=True, epochs=2, **settings)
    assert without_times(resumed.history) == without_times(once.history)
    for one, other in zip(
        once.model.state_dict().values(), resumed.model.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("model", "kind"), CASES)
def test_all_is_analog_but_the_last_layer_and_tables(
    model: str, kind: str, data: dict[str, Dataset]
) -> None:
    settings: dict[str, Any] = {"hidden": MODELS[model].get("hidden"), "seed": 3, "threads": 1}
    made = network(model, data[kind], pl.IdealConfig(), **settings)
    report = pl.conversion_report(made)
    digital = [row for row in report if not row.is_analog]
    assert report.analog
    assert [row.layer for row in digital if row.layer != "Embedding"] == ["Linear"]
    *_, last = (layer for layer in made.modules() if isinstance(layer, nn.Linear))
    assert last.out_features == data[kind].classes
    # Initial weights depend on the seed alone.
    plain = network(model, data[kind], None, **settings)
    held = pl.convert_to_digital(made).state_dict()
    for name, value in plain.state_dict().items():
        assert torch.equal(held[name], value)


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (4, 5), (13, 13), (14, 20)])
def test_lenet_takes_images_of_many_sizes(shape: tuple[int, int]) -> None:
    assert lenet(shape, 7)(torch.zeros(2, shape[0] * shape[1])).shape == (2, 7)


@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_a_character_is_predicted_from_those_before_it(
    model: str, data: dict[str, Dataset]
) -> None:
    made = network(model, data["text"], None, hidden=(8,), seed=0).eval()
    x = torch.from_numpy(data["text"].train_x[:1])
    changed = x.clone()
    changed[0, 5] = (x[0, 5] + 1) % data["text"].classes
    with torch.no_grad():
        same = (made(x) == made(changed)).all(-1)[0]
    assert same.tolist() == [True] * 5 + [False] * 3


def test_rows_of_an_image_are_the_steps() -> None:
    """Without its places, a transformer sees the order of columns, but not of rows."""
    torch.manual_seed(0)
    made = Transformer((3, 2), 4).eval()
    x = torch.randn(1, 6)
    rows = x.view(1, 3, 2)
    made.places.weight.data.zero_()  # then the order of rows cannot be seen
    with torch.no_grad():
        torch.testing.assert_close(made(rows.flip(1).reshape(1, 6)), made(x))
        assert not torch.allclose(made(rows.flip(2).reshape(1, 6)), made(x), atol=1e-3)


def test_a_text_becomes_pieces_with_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    text = "".join(chr(97 + n * n % 23) for n in range(205))
    path.write_text(text)
    made = text_file(path, 10)
    letters = sorted(set(text))
    assert (made.classes, made.shape, made.is_text) == (len(letters), (10,), True)
    read = ["".join(letters[n] for n in piece) for piece in (*made.train_x, *made.test_x)]
    split = 205 * 9 // 10
    assert read == [text[at : at + 10] for at in (*range(0, 180, 10), *range(split, 200, 10))]
    np.testing.assert_array_equal(made.train_x[:, 1:], made.train_y[:, :-1])
    np.testing.assert_array_equal(made.train_x[1:, 0], made.train_y[:-1, -1])


def test_rare_characters_of_a_text_share_a_number(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    common = "".join(map(chr, range(0x4E00, 0x4E00 + 256)))
    path.write_text(common * 3 + "xyz")
    made = text_file(path, 4)
    assert made.classes == 257
    assert made.test_y[-1].tolist()[-1] == 256
    np.testing.assert_array_equal(made.train_x[:64].ravel(), np.arange(256))


def test_texts_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("short")
    with pytest.raises(DataError, match=r"has 5 characters; .* need at least 330"):
        text_file(path)
    path.write_bytes(b"\x1f\x8b\xff" * 200)
    with pytest.raises(DataError, match=r"cannot be read as text .* a folder of IDX files"):
        text_file(path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "resnet"}, "model must be one of mlp, lenet, lstm, transformer (got 'resnet')"),
        ({"model": 3}, "model must be text (got 3)"),
        ({"model": "lenet", "hidden": (8,)}, "hidden is for mlp and lstm, and lenet has layers"),
        ({"model": "transformer", "hidden": "8"}, "hidden is for mlp and lstm, and transformer"),
        ({"model": "lstm", "hidden": (0,)}, "hidden must be at least 1 (got 0)"),
        ({"amp": 1}, "amp must be true or false (got 1)"),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Experiment(**settings)
    assert said in str(caught.value)


def test_data_that_do_not_fit_the_model_are_refused(data: dict[str, Dataset]) -> None:
    flat = dataclasses.replace(data["digits"], shape=())
    tiny = dataclasses.replace(flat, shape=(2, 32))
    for model, given, said in (
        ("mlp", data["text"], r"model = 'mlp' takes images.*choose lstm or transformer"),
        ("lenet", data["text"], "model = 'lenet' takes images"),
        ("lstm", flat, r"needs the shape of an image.*shape=\(rows, columns\)"),
        ("lenet", tiny, "at least 4 x 4 pixels, and those of digits have 2 x 32"),
    ):
        with pytest.raises(ValueError, match=said):
            Run(Experiment(model=model), data=given)
    with pytest.raises(DataError, match="the 179 pieces of the text"):
        Run(Experiment(model="lstm", batch=1000), data=data["text"])


def test_defaults_are_those_of_the_model() -> None:
    for model, defaults in MODELS.items():
        made = Experiment(model=model)
        assert {name: getattr(made, name) for name in defaults} == defaults
        assert Experiment.from_dict(json.loads(json.dumps(dataclasses.asdict(made)))) == made
    assert Experiment(model="lstm", batch=3).batch == 3


def test_a_resumed_run_has_the_same_model_and_old_ones_are_perceptrons(
    data: dict[str, Dataset], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"batch": 64, "lr": 0.1, "algorithm": "digital"}
    trained(data["digits"], tmp_path, epochs=1, **settings)
    with pytest.raises(
        ValueError, match=r"of another experiment \(.*model = 'mlp', here 'lenet'\)"
    ):
        Run(
            Experiment(model="lenet", hidden=None, **settings), tmp_path,
            resume=True, data=data["digits"],
        )  # fmt: skip
    path = tmp_path / "checkpoint.pt"
    saved = torch.load(path, weights_only=True)
    written = json.loads(saved["experiment"])
    del written["model"], written["amp"]
    torch.save(saved | {"experiment": json.dumps(written, sort_keys=True)}, path)
    assert len(trained(data["digits"], tmp_path, resume=True, epochs=2, **settings).history) == 2


def _has_bfloat16_lstm() -> bool:
    """torch's own, on a CPU, needs a processor with AVX-512."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.nn.LSTM(2, 2)(torch.zeros(2, 1, 2))
    except RuntimeError:
        return False
    return True


def test_a_processor_without_an_lstm_in_bfloat16_is_told_of(
    monkeypatch: pytest.MonkeyPatch, data: dict[str, Dataset]
) -> None:
    def refuses(*_: object) -> None:
        raise RuntimeError("could not create a primitive descriptor")

    monkeypatch.setattr(torch.nn.LSTM, "forward", refuses)
    settings: dict[str, Any] = {"epochs": 1, "batch": 16, "algorithm": "digital", "amp": True}
    with pytest.raises(ValueError, match="torch has no LSTM in bfloat16 for this processor"):
        trained(data["text"], model="lstm", **settings)


@pytest.mark.parametrize(("model", "kind"), SOME)
def test_mixed_precision_changes_digital_layers_a_little(
    model: str, kind: str, data: dict[str, Dataset]
) -> None:
    if model == "lstm" and not _has_bfloat16_lstm():
        pytest.skip("torch has no LSTM in bfloat16 for this processor")
    whole = data[kind]
    few = dataclasses.replace(whole, train_x=whole.train_x[:16], train_y=whole.train_y[:16])
    runs = [
        trained(few, model=model, epochs=1, batch=16, algorithm="digital", amp=amp)
        for amp in (False, True)
    ]
    single, mixed = (run.history[0]["loss"] for run in runs)
    assert single != mixed
    assert abs(single - mixed) < 0.02 * single
    assert {each.dtype for each in runs[1].model.parameters()} == {torch.float32}


@pytest.mark.parametrize(("model", "kind"), SOME)
def test_analog_layers_train_beside_mixed_precision(
    model: str, kind: str, data: dict[str, Dataset]
) -> None:
    few = dataclasses.replace(
        data[kind], train_x=data[kind].train_x[:16], train_y=data[kind].train_y[:16]
    )
    analog = trained(few, model=model, epochs=1, batch=16, amp=True)
    assert analog.history[0]["pulses"] > 0


def test_the_command_trains_on_a_text_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "cells.txt"
    path.write_text(TEXT)
    command = ["train", "--model", "lstm", "--hidden", "8", "--data", path, "--algorithm", "pulsed"]
    command += ["--threads", "1", "--out", tmp_path / "run"]
    for more in (["--epochs", "9"], ["--epochs", "10", "--resume"], ["--epochs", "10", "--amp"]):
        result = CliRunner().invoke(app, [str(each) for each in (*command, *more)])
        assert (result.exit_code == 0) == ("--amp" not in more), result.output
    report = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert report["experiment"]["model"] == "lstm"
    assert (len(report["epochs"]), report["experiment"]["lr"]) == (10, MODELS["lstm"]["lr"])
    result = CliRunner().invoke(app, ["forecast", str(tmp_path / "run" / "metrics.json")])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["train", "--model", "lenet", "--hidden", "8"])
    assert result.exit_code == 2
    assert "error: --hidden is for mlp and lstm, and lenet has layers of its own" in result.output


@needs_gpu
@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize(("model", "kind"), CASES)
def test_networks_train_on_a_gpu(
    model: str, kind: str, amp: bool, data: dict[str, Dataset]
) -> None:
    run = Run(Experiment(model=model, epochs=2, amp=amp), threads=1, device="cuda", data=data[kind])
    first, second = run.train()
    assert second["loss"] < first["loss"]
    assert run._epochs._step.recorded_shapes == 1
