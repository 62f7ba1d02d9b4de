"""Steps of Hugging Face's Trainer that TrainingStep makes have the bits of its own."""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.graphs.batch_step import BatchStep
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogOptimizer
from replayed_steps import counted, replay, require_same
from transformer_models import gpt2

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replayed_steps import Replayed

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
hugging_face = pytest.importorskip("pulsora.loops.hugging_face", exc_type=ImportError)

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or pl.cuda_device_count() == 0,
    reason="no GPU that torch and Pulsora can use",
)
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]

pytestmark = [  # of transformers, and of what pulses do not follow
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
]

CONFIG = pl.LRTTConfig(rank=2, transfer_every=3)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> type[Replayed]:
    return replay(monkeypatch)


class Classifier(nn.Module):
    """A model as Hugging Face's Trainer takes it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = AnalogLinear(6, 8, config=CONFIG, seed=1)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.head(torch.tanh(self.norm(self.layer(x))))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


ROWS = 44


def rows() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(ROWS, 6, generator=generator)
    labels = torch.randint(3, (ROWS,), generator=generator)
    return [{"x": each, "labels": label} for each, label in zip(x, labels, strict=True)]


def trained(
    kind: Callable[..., Any], folder: Path, resume: Path | None = None, **options: Any
) -> tuple[nn.Module, list[dict[str, float]]]:
    """A trained model, and what the Trainer logged."""
    model = Classifier()
    scaler = options.pop("scaler", None)
    optimizer = AnalogOptimizer(torch.optim.AdamW, model.parameters(), lr=0.01, analog_lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.7)
    callbacks = options.pop("callbacks", None)
    arguments = transformers.TrainingArguments(**{
        "output_dir": str(folder), "num_train_epochs": 3, "per_device_train_batch_size": 8,
        "logging_steps": 1, "eval_strategy": "epoch", "save_steps": 7, "report_to": [],
        "use_cpu": True, "disable_tqdm": True, "seed": 3, "label_names": ["labels"], **options,
    })  # fmt: skip
    trainer = kind(
        model, arguments, train_dataset=rows(), eval_dataset=rows(),
        optimizers=(optimizer, schedule), callbacks=callbacks,
    )  # fmt: skip
    if scaler is not None:
        trainer.accelerator.scaler = scaler
        if not arguments.fp16:  # which accelerate refuses on a CPU
            trainer.accelerator.native_amp = True
            trainer.accelerator.state._mixed_precision = "fp16"
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    timed = ("runtime", "per_second")
    logs = [
        {name: value for name, value in each.items() if not name.endswith(timed)}
        for each in trainer.state.log_history
    ]
    return model, logs


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "options",
    [{"max_grad_norm": 0.0}, {"max_grad_norm": 0.2}, {"max_grad_norm": 0.2, "bf16": True}],
)
def test_the_trainer_s_steps_have_the_bits_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, options: dict[str, Any]
) -> None:
    """With a scheduler, logs of losses and norms, evaluations and a smaller batch."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(device == "cuda"))
    records = counted(monkeypatch)
    options = {"use_cpu": device == "cpu", "save_strategy": "no", **options}
    model, logs = trained(transformers.Trainer, tmp_path, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        recorded, its_logs = trained(hugging_face.RecordedTrainer, tmp_path, **options)
    assert bool(records) == (device == "cuda")
    assert its_logs == logs
    assert sum("grad_norm" in each for each in logs) == 18
    require_same(model, recorded)


@pytest.mark.parametrize("device", DEVICES)
def test_the_trainer_s_steps_with_a_scaler_have_the_bits_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """The factor is too large at first, grows again, and the schedule leaves out what it does."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(device == "cuda"))
    records = counted(monkeypatch)
    options: dict[str, Any] = {
        "use_cpu": device == "cpu", "fp16": device == "cuda", "save_strategy": "no",
        "max_grad_norm": 0.2,
    }  # fmt: skip
    models, logs, factors = [], [], []
    for kind in (transformers.Trainer, hugging_face.RecordedTrainer):
        scaler = torch.amp.GradScaler(device, init_scale=2.0**20, growth_interval=4)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            model, log = trained(kind, tmp_path, scaler=scaler, **options)
        models.append(model)
        logs.append(log)
        factors.append(scaler.get_scale())
    assert bool(records) == (device == "cuda")
    assert repr(logs[0]) == repr(logs[1])  # norms may be NaN
    assert factors[0] == factors[1] < 2.0**20
    rates = [each["learning_rate"] for each in logs[0] if "learning_rate" in each]
    assert len(rates) == 18
    assert rates[-1] > 0.01 * 0.71**4  # 0.7^4 without steps that are left out
    require_same(*models)


def test_the_trainer_s_recorded_steps_log_losses_and_norms_of_each_step(
    tmp_path: Path, replayed: type[Replayed]
) -> None:
    model, logs = trained(transformers.Trainer, tmp_path, save_strategy="no")
    recorded, its_logs = trained(hugging_face.RecordedTrainer, tmp_path, save_strategy="no")
    assert replayed.made
    assert its_logs == logs
    require_same(model, recorded)


def test_the_trainer_s_steps_are_made_by_a_training_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    made = BatchStep.step

    def step(self: BatchStep, batch: Any) -> Any:  # noqa: ANN401
        sizes.append(len(batch[0]["x"]))
        return made(self, batch)

    monkeypatch.setattr(BatchStep, "step", step)
    trained(hugging_face.RecordedTrainer, tmp_path, save_strategy="no", num_train_epochs=2)
    assert sizes == [8, 8, 8, 8, 8, 4] * 2


def test_a_resumed_trainer_has_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, _ = trained(hugging_face.RecordedTrainer, tmp_path / "whole")
    resumed, _ = trained(
        hugging_face.RecordedTrainer, tmp_path / "again", tmp_path / "whole" / "checkpoint-7"
    )
    require_same(whole, resumed)


def test_numbers_of_tokens_are_no_constants_of_a_recorded_step(
    tmp_path: Path, replayed: type[Replayed]
) -> None:
    """Losses of a language model are divided by the number of labels, which differs each time."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(40, (20, 10), generator=generator)
    hidden = torch.rand(20, 10, generator=generator) < 0.4
    data = [
        {"input_ids": each, "labels": each.masked_fill(out, -100)}
        for each, out in zip(tokens, hidden, strict=True)
    ]
    models = []
    for kind in (transformers.Trainer, hugging_face.RecordedTrainer):
        model = pl.convert_to_analog(gpt2(), CONFIG, exclude=["lm_head"], seed=1, threads=1)
        optimizer = AnalogOptimizer(torch.optim.AdamW, model.parameters(), lr=0.01, analog_lr=0.1)
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=4,
            use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no", seed=3,
        )  # fmt: skip
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=10)
        kind(model, arguments, train_dataset=data, optimizers=(optimizer, schedule)).train()
        models.append(model)
    assert len(replayed.made) == 1
    require_same(*models)


class Halves(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
    """Acts amid a step, so that the Trainer makes its own."""

    def on_pre_optimizer_step(self, *_: Any, **given: Any) -> None:
        given["model"].head.weight.grad *= 0.5


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps=2 makes one step"),
        ({"torch_empty_cache_steps": 2}, "torch_empty_cache_steps=2 acts amid a step"),
        ({"callbacks": [Halves]}, "would not run on_pre_optimizer_step of Halves"),
    ],
)
def test_the_trainer_makes_steps_itself_with_a_reason(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    model, logs = trained(transformers.Trainer, tmp_path, save_strategy="no", **options)
    with pytest.warns(RuntimeWarning, match=reason) as told:
        recorded, its_logs = trained(
            hugging_face.RecordedTrainer, tmp_path, save_strategy="no", **options
        )
    assert sum(each.category is RuntimeWarning for each in told) == 1
    assert its_logs == logs
    require_same(model, recorded)


@pytest.mark.parametrize("missing", [True, False])
def test_a_missing_or_old_transformers_is_named(
    monkeypatch: pytest.MonkeyPatch, *, missing: bool
) -> None:
    """The module is imported anew where transformers is absent, and where its Trainer is older."""
    old = types.SimpleNamespace(__version__="4.46.0", Trainer=object)
    monkeypatch.setitem(sys.modules, "transformers", None if missing else old)
    monkeypatch.delitem(sys.modules, "pulsora.loops.hugging_face")
    advice = "transformers and accelerate; .*pip install" if missing else r"newer .* than 4\.46\.0"
    with pytest.raises(ImportError, match=advice):
        importlib.import_module("pulsora.loops.hugging_face")


def test_an_interrupt_after_a_step_leaves_no_later_step_out(tmp_path: Path) -> None:
    """The loop's call of the optimiser, which follows a made step, may not come."""

    class Interrupted(hugging_face.RecordedTrainer):  # type: ignore[misc,name-defined]
        def floating_point_ops(self, inputs: Any) -> int:  # noqa: ANN401
            if self.state.global_step == 2:
                raise KeyboardInterrupt
            return int(super().floating_point_ops(inputs))

        def train(self, *given: Any, **options: Any) -> Any:  # noqa: ANN401
            with pytest.raises(KeyboardInterrupt):
                super().train(*given, **options)
            assert self._recorded_step is None
            self.floating_point_ops = lambda _: 0
            self.add_callback(Halves)
            with pytest.warns(RuntimeWarning, match="on_pre_optimizer_step of Halves"):
                return super().train(*given, **options)

    model, _ = trained(Interrupted, tmp_path, save_strategy="no", num_train_epochs=1)
    (tile,) = model.layer.tiles
    assert tile.counters["mini_batches"] == 3 + 6


def test_what_the_trainer_cannot_train_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"needs a transformers\.Trainer"):

        class Alone(hugging_face.RecordedSteps):  # type: ignore[misc,name-defined]
            pass
