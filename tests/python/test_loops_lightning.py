"""Steps of Lightning that TrainingStep makes have the bits of Lightning's own."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pulsora as pl
from pulsora.graphs.batch_step import BatchStep
from pulsora.loops.lightning import RecordedSteps
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD
from replayed_steps import counted, replay, require_same

if TYPE_CHECKING:
    from pathlib import Path

    from replayed_steps import Replayed

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
    """Steps, losses and metrics that a callback sees after each batch."""

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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_clip_val": 0.2},
        {"precision": "bf16-mixed", "gradient_clip_val": 0.2},
        {"precision": "16-mixed", "gradient_clip_val": 0.2},
        {"precision": "16-mixed"},
    ],
)
def test_lightning_s_steps_have_the_bits_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, options: dict[str, Any]
) -> None:
    """With a scheduler, a callback, logs, evaluations and a smaller batch."""
    if device == "cpu" and options.get("precision") == "16-mixed":
        pytest.skip("Lightning has 16-mixed on a GPU")
    records = counted(monkeypatch)
    modules = [Module(), Recorded()]
    options = {"accelerator": "cpu" if device == "cpu" else "gpu", **options}
    own = fit(modules[0], tmp_path, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        recorded = fit(modules[1], tmp_path, **options)
    assert bool(records) == (device == "cuda")
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


class Manual(Module):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> torch.Tensor:  # noqa: ANN401
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = super().training_step(batch, index)
        self.manual_backward(loss)
        optimizer.step()
        return loss


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
        (Module, {"precision": "bf16-true"}, "precision='bf16-true' is not recorded"),
        (Module, {"callbacks": [Amid()]}, r"would not run Amid\.on_after_backward"),
        (
            Module,
            {"callbacks": [lightning.callbacks.LambdaCallback(on_before_zero_grad=print)]},
            r"would not run LambdaCallback\(on_before_zero_grad=",
        ),
        (Manual, {}, "automatic_optimization=False"),
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


def test_a_compiled_module_is_trained_by_lightning(tmp_path: Path) -> None:
    class Quiet(Module):
        """Without logs, of which torch cannot compile Lightning's code."""

        def training_step(self, batch: Any, _index: int) -> torch.Tensor:  # noqa: ANN401
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    class Ours(RecordedSteps, Quiet):
        pass

    own, ours = torch.compile(Quiet(), backend="eager"), Ours()
    fit(own, tmp_path, epochs=1)
    with pytest.warns(RuntimeWarning, match="a compiled module is not recorded"):
        fit(torch.compile(ours, backend="eager"), tmp_path, epochs=1)
    require_same(own._orig_mod, ours)


def test_what_lightning_cannot_train_is_refused_by_name(tmp_path: Path) -> None:
    class Mixed(Recorded):
        def training_step(self, batch: Any, _index: int) -> torch.Tensor:  # noqa: ANN401
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    mixed = Mixed()
    before = mixed.model[0].weight
    with pytest.raises(TypeError, match=r"Mixed\.training_step hides that of RecordedSteps"):
        fit(mixed, tmp_path)
    assert torch.equal(mixed.model[0].weight, before)

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


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> type[Replayed]:
    return replay(monkeypatch)


def test_numbers_of_a_recorded_step_are_those_of_each_step(
    tmp_path: Path, replayed: type[Replayed]
) -> None:
    modules = [Module(), Recorded()]
    own = fit(modules[0], tmp_path, gradient_clip_val=0.2)
    recorded = fit(modules[1], tmp_path, gradient_clip_val=0.2)
    assert replayed.made
    assert recorded.steps == own.steps
    require_same(*modules)
