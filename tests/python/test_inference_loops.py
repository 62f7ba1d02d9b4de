"""Hardware-aware layers under loops of others: transformers, Lightning, accelerate, autocast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import pulsora as pl

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402 - needs torch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")  # of the frameworks

CONFIG = pl.InferenceConfig(
    modifier="add_normal", modifier_std=0.05, clip="gaussian", clip_sigma=2.0
)
STEPS, ROWS = 6, 8


class Classifier(nn.Module):
    """A hardware-aware model that gives loss and logits, as the Trainer asks."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        self.net = pl.convert_to_analog(net, CONFIG.replace(**settings), seed=1, threads=1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def data() -> list[dict[str, torch.Tensor]]:
    """Samples with classes that a network can learn."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(STEPS * ROWS, 6, generator=generator)
    return [{"x": row, "labels": row[:3].argmax()} for row in x]


def batches() -> list[dict[str, torch.Tensor]]:
    rows = data()
    parts = [rows[i : i + ROWS] for i in range(0, len(rows), ROWS)]
    return [{name: torch.stack([row[name] for row in part]) for name in part[0]} for part in parts]


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.02)


def by_hand(rows_of_a_step: int = 1, **settings: Any) -> dict[str, torch.Tensor]:
    """The weights after a plain loop, whose steps have so many mini-batches."""
    model = Classifier(**settings).train()
    optimizer = optimizer_of(model)
    for number, batch in enumerate(batches()):
        (model(**batch)["loss"] / rows_of_a_step).backward()
        if (number + 1) % rows_of_a_step == 0:
            optimizer.step()
            optimizer.zero_grad()
    return model.state_dict()


def require_same(model: nn.Module, wanted: dict[str, torch.Tensor]) -> None:
    """The weights of the loop by hand, clipped, and a model that can be programmed."""
    start = Classifier().state_dict()
    found = model.state_dict()
    for name in ("net.0.weight", "net.2.weight", "net.0.bias"):
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-6, atol=1e-7)
        assert not torch.equal(found[name], start[name])
    for layer in (model.net[0], model.net[2]):  # type: ignore[index,union-attr]
        w = layer.weight.detach()
        assert float(w.abs().max()) <= 2.0 * float(w.std()) * 1.25
    net: Any = model.eval().net
    x = batches()[0]["x"]
    pl.drift(pl.program(net, 1), "1 day")
    assert net(x).isfinite().all()


def test_the_trainer_of_transformers_has_the_weights_of_a_plain_loop(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    model = Classifier()

    class InOrder(transformers.Trainer):  # type: ignore[misc,name-defined]
        def _get_train_sampler(self, *_: object) -> torch.utils.data.Sampler[int]:
            return torch.utils.data.SequentialSampler(data())

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=STEPS, per_device_train_batch_size=ROWS, report_to=[],
        max_grad_norm=0.0, disable_tqdm=True, use_cpu=True, save_steps=3, seed=3,
    )  # fmt: skip

    def trainer(trained: nn.Module) -> Any:  # noqa: ANN401
        optimizer = optimizer_of(trained)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
        return InOrder(trained, arguments, train_dataset=data(), optimizers=(optimizer, scheduler))

    trainer(model).train()
    wanted = model.state_dict()
    require_same(model, by_hand())
    resumed = Classifier()
    trainer(resumed).train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    for name in ("net.0.weight", "net.2.weight", "net.2.bias"):
        assert torch.equal(resumed.state_dict()[name], wanted[name])


def test_lightning_has_the_weights_of_a_plain_loop(tmp_path: Path) -> None:
    lightning = pytest.importorskip("pytorch_lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = Classifier()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(self)

        def training_step(self, batch: dict[str, torch.Tensor], _index: int) -> torch.Tensor:
            return self.model(**batch)["loss"]

    module = Module()
    trainer = lightning.Trainer(
        max_epochs=1, default_root_dir=tmp_path, accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(data(), ROWS))
    require_same(module.model, by_hand())


def test_accelerate_accumulates_as_a_plain_loop() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Classifier(modifier_every="step").train()
    loader = torch.utils.data.DataLoader(data(), ROWS)
    ready, optimizer, loader = accelerator.prepare(model, optimizer_of(model), loader)
    for batch in loader:
        with accelerator.accumulate(ready):
            accelerator.backward(ready(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
    require_same(model, by_hand(2, modifier_every="step"))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_gradients_under_autocast_are_products_in_its_type(kind: torch.dtype) -> None:
    layer = pl.nn.AnalogLinear(11, 7, config=pl.InferenceConfig(), seed=1)
    x = torch.randn(9, 11, generator=torch.Generator().manual_seed(2))
    with torch.autocast("cpu", kind):
        y = layer(x)
    assert y.dtype == kind
    d = torch.randn(9, 7, generator=torch.Generator().manual_seed(3)).to(kind)
    y.backward(d)
    seen = layer.held.converted(x)  # what the array saw, by its DACs
    exact = d.double().t() @ seen.double()
    wanted = (d.t() @ seen.to(kind)).float()
    assert layer.weight.grad.dtype == torch.float32
    assert torch.equal(layer.weight.grad, wanted)
    assert 0 < (wanted - exact).norm() < 0.02 * exact.norm()


def test_bfloat16_under_autocast_with_a_scaler_learns() -> None:
    model = Classifier().train()
    optimizer = optimizer_of(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    losses = []
    for _ in range(15):
        for batch in batches():
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(**batch)["loss"]
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    assert sum(losses[-STEPS:]) < 0.6 * sum(losses[:STEPS])
    assert model.net[0].weight.dtype == torch.float32
    # A gradient that is not finite is left out, and the scale is halved.
    before = {name: each.clone() for name, each in model.named_parameters()}
    scale = scaler.get_scale()
    optimizer.zero_grad()
    scaler.scale(model(**batches()[0])["loss"]).backward()
    model.net[2].weight.grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == scale / 2
    assert all(torch.equal(each, before[name]) for name, each in model.named_parameters())
    # Gradients in bfloat16 point where those of single precision do.
    gradients = []
    for enabled in (False, True):
        twin = Classifier().train()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = twin(**batches()[0])["loss"]
        loss.backward()
        gradients.append(torch.cat([each.grad.flatten() for each in twin.parameters()]))
    assert (gradients[1] - gradients[0]).norm() < 0.1 * gradients[0].norm()
