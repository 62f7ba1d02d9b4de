"""Steps of Lightning and of Hugging Face's Trainer by TrainingStep have the bits of their own."""

from __future__ import annotations

import copy
import warnings
from collections import UserDict
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pulsora as pl
from pulsora.graphs import training_step
from pulsora.graphs.batch_parts import put_together, taken_apart
from pulsora.graphs.batch_step import BatchStep
from pulsora.loops.lightning import RecordedSteps
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogOptimizer, AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

lightning = pytest.importorskip("pytorch_lightning")

CUDA = torch.cuda.is_available() and pl.cuda_device_count() > 0
needs_gpu = pytest.mark.skipif(not CUDA, reason="no GPU that torch and Pulsora can use")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]

# Of Lightning: loggers, workers, directories; of Pulsora: what pulses do not follow.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*GPU available but not used"),
]

CONFIG = pl.LRTTConfig(rank=2, transfer_every=3)


class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
    """A user's module, which knows nothing of recorded steps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.model = nn.Sequential(
            AnalogLinear(6, 8, config=CONFIG, seed=1),
            nn.BatchNorm1d(8),
            nn.Tanh(),
            nn.Linear(8, 3),
        )
        self.losses: list[float] = []

    def training_step(self, batch: Any, _index: int) -> torch.Tensor:  # noqa: ANN401
        x, labels = batch
        logits = self.model(x)
        loss = nn.functional.cross_entropy(logits, labels)
        self.log("loss", loss, False, on_step=True, on_epoch=True)  # noqa: FBT003 - a position
        self.log_dict({"right": (logits.argmax(1) == labels).sum()}, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, _index: int) -> None:  # noqa: ANN401
        self.losses.append(float(nn.functional.cross_entropy(self.model(batch[0]), batch[1])))

    def configure_optimizers(self) -> Any:  # noqa: ANN401
        optimizer = AnalogSGD(self.parameters(), lr=0.1, momentum=0.5)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.7)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Recorded(RecordedSteps, Module):
    pass


class Seen(lightning.Callback):  # type: ignore[misc,name-defined]
    """What a callback sees after each batch."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, float, dict[str, float]]] = []

    def on_train_batch_end(self, trainer: Any, *given: Any) -> None:  # noqa: ANN401
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.steps.append((trainer.global_step, float(given[1]["loss"]), metrics))


def fit(module: Module, folder: Path, *, epochs: int = 3, **options: Any) -> Seen:
    seen = Seen()
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(44, 6, generator=generator)  # the last batch of an epoch is smaller
    data = TensorDataset(x, torch.randint(3, (44,), generator=generator))
    checkpoint = options.pop("checkpoint", None)
    trainer = lightning.Trainer(**{
        "max_epochs": epochs, "callbacks": [seen, *options.pop("callbacks", ())],
        "default_root_dir": folder, "accelerator": "cpu", "devices": 1, "logger": False,
        "enable_checkpointing": False, "enable_progress_bar": False,
        "enable_model_summary": False, **options,
    })  # fmt: skip
    trainer.fit(module, DataLoader(data, 8), DataLoader(data, 20), ckpt_path=checkpoint)
    trainer.save_checkpoint(folder / "stopped.ckpt")
    return seen


def require_same(one: nn.Module, other: nn.Module) -> None:
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("clip", [None, 0.2])
def test_lightning_s_steps_have_the_bits_of_its_own(
    tmp_path: Path, device: str, clip: float | None
) -> None:
    """With a scheduler, a callback, logs, evaluations and a smaller batch."""
    modules = [Module(), Recorded()]
    options = {"gradient_clip_val": clip, "accelerator": "cpu" if device == "cpu" else "gpu"}
    own = fit(modules[0], tmp_path, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        recorded = fit(modules[1], tmp_path, **options)
    assert recorded.steps == own.steps
    assert modules[1].losses == modules[0].losses
    assert own.steps[-1][0] == 18
    assert modules[1]._recorded_step is None  # graphs are freed
    require_same(*modules)


def test_lightning_s_steps_are_made_by_a_training_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    made = BatchStep.step

    def step(self: BatchStep, batch: Any) -> Any:  # noqa: ANN401
        sizes.append(len(batch[0]))
        return made(self, batch)

    monkeypatch.setattr(BatchStep, "step", step)
    fit(Recorded(), tmp_path, epochs=2)
    assert sizes == [8, 8, 8, 8, 8, 4] * 2


def test_a_resumed_fit_has_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, resumed = Recorded(), Recorded()
    fit(whole, tmp_path, epochs=4)
    fit(Recorded(), tmp_path, epochs=2)
    fit(resumed, tmp_path, epochs=4, checkpoint=tmp_path / "stopped.ckpt")
    require_same(whole, resumed)
    assert whole.losses[-6:] == resumed.losses[-6:]


class Amid(lightning.Callback):  # type: ignore[misc,name-defined]
    def on_after_backward(self, _trainer: Any, module: Any) -> None:  # noqa: ANN401
        module.model[3].weight.grad *= 0.5


class Slow(Module):
    def optimizer_step(self, *given: Any, **options: Any) -> None:
        super().optimizer_step(*given, **options)
        self.trainer.optimizers[0].param_groups[0]["lr"] = 0.01


class Floats(Module):
    def training_step(self, batch: Any, index: int) -> torch.Tensor:  # noqa: ANN401
        loss = super().training_step(batch, index)
        self.log("half", float(loss) / 2)
        return loss


class Counts(Module):
    def __init__(self) -> None:
        super().__init__()
        torchmetrics = pytest.importorskip("torchmetrics")
        self.mean = torchmetrics.MeanMetric()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:  # noqa: ANN401
        loss = super().training_step(batch, index)
        self.mean(loss.detach())
        return loss


class Returns(Module):
    def training_step(self, batch: Any, index: int) -> Any:  # noqa: ANN401
        loss = super().training_step(batch, index)
        return {"loss": loss, "twice": 2 * loss.detach()}


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        (Module, {"accumulate_grad_batches": 2}, "accumulate_grad_batches=2 makes one step"),
        (Module, {"precision": "bf16-mixed"}, "precision='bf16-mixed' is not recorded"),
        (Module, {"callbacks": [Amid()]}, r"would not run Amid\.on_after_backward"),
        (Slow, {}, r"would not run Slow\.optimizer_step"),
        (Floats, {}, "training_step logs 'half', a float"),
        (Counts, {}, "updates a metric of torchmetrics"),
        (Returns, {}, r"training_step returns \['loss', 'twice'\]"),
    ],
)
def test_lightning_makes_steps_itself_with_a_reason(
    tmp_path: Path, kind: type[Module], options: dict[str, Any], reason: str
) -> None:
    class Ours(RecordedSteps, kind):  # type: ignore[misc,valid-type]
        pass

    modules = [kind(), Ours()]
    own = fit(modules[0], tmp_path, epochs=2, **options)
    with pytest.warns(RuntimeWarning, match=reason) as told:
        ours = fit(modules[1], tmp_path, epochs=2, **options)
    assert sum(each.category is RuntimeWarning for each in told) == 1
    assert ours.steps == own.steps
    require_same(*modules)
    if kind is Counts:
        assert torch.equal(modules[0].mean.compute(), modules[1].mean.compute())


def test_what_lightning_cannot_train_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"Mixed\.training_step hides that of RecordedSteps"):

        class Mixed(RecordedSteps, Module):
            def training_step(self, _batch: Any, _index: int) -> torch.Tensor:  # noqa: ANN401
                return torch.zeros(())

    with pytest.raises(TypeError, match="RecordedSteps needs a LightningModule behind it"):

        class Alone(RecordedSteps):
            pass

    class Digital(Recorded):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.model[3].parameters(), lr=0.1)

    with pytest.raises(TypeError, match=r"give one of pulsora\.optim"):
        fit(Digital(), tmp_path)


def test_a_module_is_copied_without_its_recorded_steps() -> None:
    module = Recorded()
    module._recorded_step = object()
    assert copy.deepcopy(module)._recorded_step is None


class Replayed:
    """Stands for a recorded step where there is no GPU: runs it, and repeats no Python label."""

    made = 0

    def __init__(
        self, _optimizer: object, loss: Callable[..., torch.Tensor], _batch: object, **given: Any
    ) -> None:
        self.loss, self.constants, self.rates = loss, given["constants"], given["rates"]
        self.step: BatchStep = loss.__self__  # type: ignore[attr-defined]
        self.labels: Any = None
        type(self).made += 1

    def run(self, optimizer: torch.optim.Optimizer, batch: object) -> torch.Tensor:
        loss = self.loss(batch)
        if self.labels is None:  # as on recording
            self.labels = dict(self.step._results)
        self.step._results = dict(self.labels)
        optimizer.step()
        return loss


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> type[Replayed]:
    monkeypatch.setattr(training_step, "_recordable", lambda _: True)
    monkeypatch.setattr(training_step, "RecordedStep", Replayed)
    monkeypatch.setattr(training_step, "_random_numbers", lambda _: 0)
    monkeypatch.setattr(torch.cuda.CUDAGraph, "raw_cuda_graph", None, raising=False)
    monkeypatch.setattr(Replayed, "made", 0)
    return Replayed


def test_numbers_of_a_recorded_step_are_those_of_each_step(
    tmp_path: Path, replayed: type[Replayed]
) -> None:
    modules = [Module(), Recorded()]
    own = fit(modules[0], tmp_path, gradient_clip_val=0.2)
    recorded = fit(modules[1], tmp_path, gradient_clip_val=0.2)
    assert replayed.made > 0
    assert recorded.steps == own.steps
    require_same(*modules)


class Pair(NamedTuple):
    x: torch.Tensor
    target: torch.Tensor


def test_batches_of_any_structure_are_taken_apart_and_put_together() -> None:
    one, two = torch.ones(2), torch.zeros(3)
    batches = [
        one,
        (one, [two, {"a": one, "b": None}], 3, "name", torch.float32),
        Pair(one, two),
        UserDict({"x": one, "deep": (two,)}),
    ]
    for batch in batches:
        tensors: list[torch.Tensor] = []
        structure = taken_apart(batch, tensors)
        again = put_together(structure, iter(tensors))
        assert type(again) is type(batch)
        assert str(again) == str(batch)
        assert hash(structure) == hash(taken_apart(batch, []))
    assert taken_apart({"n": 1}, []) != taken_apart({"n": True}, [])
    with pytest.raises(TypeError, match="a batch has an object of type object"):
        taken_apart({"x": one, "other": object()}, [])


def test_a_batch_step_keeps_numbers_of_all_types_exactly() -> None:
    model = AnalogLinear(3, 2, config=pl.SingleConfig(), seed=1)
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    given = [torch.tensor([2**40 + 1]), torch.tensor(True), torch.tensor(1 / 3).double()]

    def loss_of(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        for number, each in enumerate(given):
            step.keep(number, each)
        return model(batch["x"]).square().sum()

    step = BatchStep(model, optimizer, loss_of)
    loss, kept = step.step({"x": torch.ones(4, 3)})
    assert loss.dtype == torch.float32
    assert loss.shape == ()
    for number, (label, value) in enumerate(kept):
        assert label == number
        assert value.dtype == given[number].dtype
        assert torch.equal(value, given[number])
    with pytest.raises(TypeError, match="a batch of type dict has no tensor"):
        step.step({"x": 1})


def test_constants_that_change_forever_end_the_search_for_graphs(
    replayed: type[Replayed],
) -> None:
    model = AnalogLinear(3, 2, config=pl.SingleConfig(), seed=1)
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    step = BatchStep(model, optimizer, lambda batch: model(batch[0]).square().mean() + batch[1])
    x = torch.ones(4, 3)
    losses = [float(step.step((x, 100 * (number % 2)))[0]) for number in range(10)]
    assert replayed.made == 2
    assert [loss > 50 for loss in losses] == [False, True] * 5
    with pytest.warns(RuntimeWarning, match="more than 64 shapes and constants"):
        for number in range(70):
            step.step((x, -1 - number))


# Hugging Face's Trainer


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
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    model = Classifier()
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
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    timed = ("runtime", "per_second")
    logs = [
        {name: value for name, value in each.items() if not name.endswith(timed)}
        for each in trainer.state.log_history
    ]
    return model, logs


def kinds() -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    hugging_face = pytest.importorskip("pulsora.loops.hugging_face")
    return transformers.Trainer, hugging_face.RecordedTrainer


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("clip", [0.0, 0.2])
def test_the_trainer_s_steps_have_the_bits_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, clip: float
) -> None:
    """With a scheduler, logs of losses and norms, evaluations and a smaller batch."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(device == "cuda"))
    own, ours = kinds()
    options = {"max_grad_norm": clip, "use_cpu": device == "cpu", "save_strategy": "no"}
    model, logs = trained(own, tmp_path, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        recorded, its_logs = trained(ours, tmp_path, **options)
    assert its_logs == logs
    assert sum("grad_norm" in each for each in logs) == 18
    require_same(model, recorded)


def test_the_trainer_s_recorded_steps_log_losses_and_norms_of_each_step(
    tmp_path: Path, replayed: type[Replayed]
) -> None:
    own, ours = kinds()
    model, logs = trained(own, tmp_path, save_strategy="no")
    recorded, its_logs = trained(ours, tmp_path, save_strategy="no")
    assert replayed.made > 0
    assert its_logs == logs
    require_same(model, recorded)


def test_a_resumed_trainer_has_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    _, ours = kinds()
    whole, _ = trained(ours, tmp_path / "whole")
    resumed, _ = trained(ours, tmp_path / "again", tmp_path / "whole" / "checkpoint-7")
    require_same(whole, resumed)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps=2 makes one step"),
        ({"bf16": True}, r"mixed precision \(bf16\) is not recorded"),
        ({"torch_empty_cache_steps": 2}, "torch_empty_cache_steps=2 acts amid a step"),
        ({"callbacks": "amid"}, "would not run on_pre_optimizer_step of Halves"),
    ],
)
def test_the_trainer_makes_steps_itself_with_a_reason(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    own, ours = kinds()
    transformers = pytest.importorskip("transformers")

    class Halves(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_pre_optimizer_step(self, *_: Any, **given: Any) -> None:
            given["model"].head.weight.grad *= 0.5

    if options.get("callbacks") == "amid":
        options = {"callbacks": [Halves()]}
    model, logs = trained(own, tmp_path, save_strategy="no", **options)
    with pytest.warns(RuntimeWarning, match=reason) as told:
        recorded, its_logs = trained(ours, tmp_path, save_strategy="no", **options)
    assert sum(each.category is RuntimeWarning for each in told) == 1
    assert its_logs == logs
    require_same(model, recorded)


def test_what_the_trainer_cannot_train_is_refused_by_name() -> None:
    own, _ = kinds()
    hugging_face = pytest.importorskip("pulsora.loops.hugging_face")
    with pytest.raises(TypeError, match=r"Mixed\.training_step hides that of RecordedSteps"):

        class Mixed(hugging_face.RecordedSteps, own):  # type: ignore[misc,valid-type]
            def training_step(self, *_: Any) -> torch.Tensor:
                return torch.zeros(())

    with pytest.raises(TypeError, match=r"needs transformers\.Trainer"):

        class Alone(hugging_face.RecordedSteps):  # type: ignore[misc,name-defined]
            pass
