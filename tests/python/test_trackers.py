"""Trackers, read back from the files that they wrote, and callbacks of Trainers."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pulsora.cli import app
from pulsora.records import files
from pulsora.report.page import page
from pulsora.report.runs import load
from pulsora.trackers.writers import JsonLines, MLflow, TensorBoard, WandB

torch = pytest.importorskip("torch")

import pulsora as pl  # noqa: E402 - needs torch
from pulsora.records.collect import epoch_record  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from pulsora.trackers.writers import Tracker

pytestmark = pytest.mark.filterwarnings("ignore")  # of trackers and Trainers


needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)


def events_in(folder: str, **options: Any) -> Any:  # noqa: ANN401
    """The reader of the event files in a folder."""
    name = "tensorboard.backend.event_processing.event_accumulator"
    return importlib.import_module(name).EventAccumulator(folder, **options)


def stream() -> tuple[files.Record, list[files.Record]]:
    """The lines of a small run."""
    layer = pl.nn.AnalogLinear(
        5, 4, config=pl.presets.lrtt(pl.devices.ReRamSB(), 2), seed=1, bias=False
    )
    epochs = []
    for epoch in (1, 2):
        epochs.append(epoch_record(layer, epoch, {"loss": 1.0 / epoch, "accuracy": 0.5}))
        layer.set_weights(torch.full((4, 5), 0.1 * epoch))
    return files.run_line("a run", {"lr": 0.1, "tile": {"rank": 2}}), epochs


def feed(tracker: Tracker) -> list[files.Record]:
    run, epochs = stream()
    tracker.begin(run)
    for epoch in epochs:
        tracker.epoch(epoch)
    tracker.end()
    return epochs


def test_lines_are_a_run_for_reports(tmp_path: Path) -> None:
    epochs = feed(JsonLines(tmp_path / "run"))
    (run,) = load([tmp_path / "run"])
    assert list(run.epochs) == json.loads(json.dumps(epochs))
    assert run.records.settings == {"lr": 0.1, "tile": {"rank": 2}}


@needs_tensorboard
def test_tensorboard_has_all_numbers_and_histograms(tmp_path: Path) -> None:
    feed(TensorBoard(tmp_path))
    epochs = feed(TensorBoard(tmp_path))  # a resumed run tells everything again
    read = events_in(str(tmp_path), size_guidance={"scalars": 0, "histograms": 0})
    read.Reload()
    expected = [files.scalars(epoch) for epoch in epochs]
    assert set(read.Tags()["scalars"]) == set(expected[0]) | set(expected[1])
    for name in expected[0]:
        events = read.Scalars(name)
        assert [event.step for event in events] == [1, 2]
        for event, values in zip(events, expected, strict=True):
            assert event.value == np.float32(values[name])
    for event, epoch in zip(read.Histograms("model/0/visible"), epochs, strict=True):
        one = epoch["tiles"][0]["arrays"]["visible"]["distribution"]
        made = event.histogram_value
        assert (made.num, made.min, made.max) == (20, one["low"], one["high"])
        assert sum(made.bucket) == 20
        assert made.sum == pytest.approx(20 * one["mean"])


@pytest.mark.parametrize("store", ["file", "sqlite"])
def test_mlflow_has_parameters_and_all_numbers(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # which newer versions ask for
    monkeypatch.chdir(tmp_path)
    uri = f"file:{tmp_path}/mlruns" if store == "file" else f"sqlite:///{tmp_path}/mlflow.db"
    tracker = MLflow(uri)
    epochs = feed(tracker)
    client = mlflow.MlflowClient(tracking_uri=uri)
    run = client.get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"lr": "0.1", "tile.rank": "2"}
    expected = [files.scalars(epoch) for epoch in epochs]
    assert set(run.data.metrics) == set(expected[0])
    for name in ("loss", "model/0/visible/std", "model/0/fast_a/saturated"):
        history = client.get_metric_history(tracker.run_id, name)
        assert [(one.step, one.value) for one in history] == [
            (step, pytest.approx(values[name])) for step, values in enumerate(expected, 1)
        ]


def test_wandb_offline_writes_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    feed(WandB(mode="offline", dir=str(tmp_path)))
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    content = path.read_bytes()
    for text in (b"model/0/visible/std", b"a run", b"accuracy", b"model/0/fast_a/saturated"):
        assert text in content


@needs_tensorboard
def test_train_gives_its_records_to_trackers(tmp_path: Path) -> None:
    small = ["train", "--hidden", "4", "--algorithm", "pulsed", "--threads", "1"]
    tracked = [*small, "--track", "tensorboard", "--out", str(tmp_path)]
    for more in (["--epochs", "1"], ["--epochs", "2", "--resume"]):
        result = CliRunner().invoke(app, [*tracked, *more])
        assert result.exit_code == 0, result.output
    read = events_in(str(tmp_path / "tensorboard"))
    read.Reload()
    losses = [epoch["metrics"]["loss"] for epoch in files.read(tmp_path / files.FILE).epochs]
    assert [event.value for event in read.Scalars("loss")] == [np.float32(one) for one in losses]
    assert len(losses) == 2


@pytest.mark.parametrize("names", ["other", "tensorboard,tensorboard", ""])
def test_bad_names_of_trackers_are_refused(names: str, tmp_path: Path) -> None:
    arguments = ["train", "--track", names, "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "--track must be some of tensorboard, mlflow, wandb" in result.output
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r"needs tensorboard .*pip install tensorboard"):
        TensorBoard(tmp_path)


def module_of_lightning(lightning: Any) -> Any:  # noqa: ANN401
    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters({"lr": 0.1})
            self.layer = pl.nn.AnalogLinear(6, 3, config=pl.SingleConfig(), seed=1)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return pl.optim.AnalogSGD(self.parameters(), lr=0.1)

        def training_step(self, batch: Any, _index: int) -> Any:  # noqa: ANN401
            loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
            self.log("loss", loss, on_epoch=True, on_step=False)
            return loss

        def validation_step(self, batch: Any, _index: int) -> None:  # noqa: ANN401
            self.log("val_loss", self.layer(batch[0]).square().mean())

    return Module()


def test_lightning_records_each_epoch(tmp_path: Path) -> None:
    lightning = pytest.importorskip("pytorch_lightning")
    recorder = importlib.import_module("pulsora.trackers.lightning").Recorder
    data = torch.utils.data.TensorDataset(torch.randn(20, 6), torch.arange(20) % 3)
    module = module_of_lightning(lightning)
    trainer = lightning.Trainer(
        max_epochs=3,
        callbacks=[recorder(JsonLines(tmp_path / "run"))],
        default_root_dir=tmp_path,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = torch.utils.data.DataLoader(data, 5)
    trainer.fit(module, loader, loader)
    (run,) = load([tmp_path / "run"])
    assert run.records.settings == {"lr": 0.1}
    assert [sorted(epoch["metrics"]) for epoch in run.epochs] == [["loss", "val_loss"]] * 3
    pulses = [epoch["tiles"][0]["statistics"]["pulses"] for epoch in run.epochs]
    assert pulses == sorted(pulses)
    assert pulses[-1] == next(iter(module.layer.tiles)).statistics()["pulses"] > 0
    assert "val loss" in page([run])


class Classifier(torch.nn.Module):
    """A model as Hugging Face's Trainer takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = pl.nn.AnalogLinear(6, 3, config=pl.SingleConfig(), seed=1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_hugging_face_records_each_epoch(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    recorder = importlib.import_module("pulsora.trackers.hugging_face").Recorder
    model = Classifier()
    data = [{"x": torch.randn(6), "labels": torch.tensor(number % 3)} for number in range(20)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        num_train_epochs=3,
        per_device_train_batch_size=5,
        logging_strategy="epoch",
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        max_grad_norm=0.0,
    )
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    transformers.Trainer(
        model,
        arguments,
        train_dataset=data,
        eval_dataset=data,
        optimizers=(optimizer, schedule),
        callbacks=[recorder(JsonLines(tmp_path / "run"))],
    ).train()
    (run,) = load([tmp_path / "run"])
    assert run.records.settings["num_train_epochs"] == 3
    assert len(run.epochs) == 3
    for epoch in run.epochs:
        assert {"loss", "eval_loss", "learning_rate"} <= set(epoch["metrics"])
    pulses = run.epochs[-1]["tiles"][0]["statistics"]["pulses"]
    assert pulses == next(iter(model.layer.tiles)).statistics()["pulses"] > 0
