"""Models of transformers, made from configs: conversion, training, and frameworks."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import DEVICES, PERFECT
from pulsora.nn import AnalogLinear, AnalogModule
from transformer_models import bert, gpt2, llama, transformers, vit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


IDEAL = pl.IdealConfig(**PERFECT)
SINGLE = pl.SingleConfig(device=pl.devices.GokmenVlasov())


def batch(model: nn.Module, device: str = "cpu") -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    kind = model.config.model_type  # type: ignore[union-attr]
    if kind == "vit":
        given = {"pixel_values": torch.randn(4, 1, 8, 8, generator=rng)}
    else:
        given = {"input_ids": torch.randint(40, (4, 10), generator=rng)}
    labels = given["input_ids"] if kind in {"gpt2", "llama"} else torch.arange(4) % 3
    return {name: values.to(device) for name, values in {**given, "labels": labels}.items()}


ANALOG: dict[Callable[[], nn.Module], tuple[int, dict[str, str]]] = {
    bert: (8, {
        "bert.embeddings.word_embeddings": "a table",
        "bert.embeddings.position_embeddings": "a table",
        "bert.embeddings.token_type_embeddings": "a table",
    }),
    vit: (8, {}),
    gpt2: (4, {
        "transformer.wte": "a table",
        "transformer.wpe": "a table",
        "lm_head": "its weight is the table 'transformer.wte', too",
    }),
    llama: (8, {"model.embed_tokens": "a table"}),
}  # fmt: skip


def convert(model: nn.Module, config: pl.TileConfig, **options: Any) -> nn.Module:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "these layers stay digital: lm_head")
        return pl.convert_to_analog(model, config, seed=1, threads=1, **options)


@pytest.mark.parametrize("build", list(ANALOG), ids=lambda build: build.__name__)
def test_a_model_converts_with_a_report_and_comes_back(
    build: Callable[[], nn.Module], device: str
) -> None:
    model = build().to(device)
    analog = convert(model, IDEAL)
    report = pl.conversion_report(analog)
    count, digital = ANALOG[build]
    assert len(report.analog) == count
    assert set(report.digital) == set(digital)
    for name, reason in digital.items():
        assert report.digital[name].startswith(reason)
    given = batch(model, device)
    torch.testing.assert_close(analog(**given).logits, model(**given).logits, rtol=1e-4, atol=1e-5)
    back = pl.convert_to_digital(analog)
    assert [type(layer) for layer in back.modules()] == [type(layer) for layer in model.modules()]
    for name, values in model.state_dict().items():
        torch.testing.assert_close(back.state_dict()[name], values, rtol=1e-6, atol=1e-7)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Pulses follow plain SGD, which takes larger steps than Adam's."""
    pulsed = [p for p in model.parameters() if isinstance(p, pl.nn.AnalogParameter)]
    digital = [p for p in model.parameters() if not isinstance(p, pl.nn.AnalogParameter)]
    groups = [{"params": pulsed, "lr": 0.5}, {"params": digital}]
    return pl.optim.AnalogOptimizer(torch.optim.AdamW, groups, lr=5e-3)


@pytest.mark.parametrize("build", list(ANALOG), ids=lambda build: build.__name__)
def test_a_converted_model_trains(build: Callable[[], nn.Module], device: str) -> None:
    model = build().to(device)
    analog = convert(model, SINGLE, weight_scaling=0.3).train()
    optimizer = optimizer_of(analog)
    given = batch(model, device)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = analog(**given).loss
        loss.backward()
        nn.utils.clip_grad_norm_(analog.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    layers = [layer for layer in analog.modules() if isinstance(layer, AnalogModule)]
    assert all(sum(table["pulses"] for table in layer.statistics()) > 0 for layer in layers)


def test_a_tied_head_is_converted_when_asked() -> None:
    model = gpt2()
    with pytest.warns(UserWarning, match=r"lm_head \(Linear: its weight is the table"):
        pl.convert_to_analog(model, IDEAL)
    analog = pl.convert_to_analog(model, IDEAL, untie=["lm_head"])
    assert isinstance(analog.lm_head, AnalogLinear)
    assert not analog.config.tie_word_embeddings
    assert model.config.tie_word_embeddings
    given = batch(model)
    torch.testing.assert_close(analog(**given).logits, model(**given).logits, rtol=1e-4, atol=1e-5)


def test_generation_reads_the_tiles() -> None:
    analog = convert(gpt2(), SINGLE)
    prompt = torch.tensor([[1, 2, 3]])
    text = analog.generate(prompt, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert text.shape[1] > 3
    (tile,) = analog.transformer.h[0].attn.c_attn.tiles
    assert tile.evaluated >= 6


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __init__(self, model: nn.Module) -> None:
        self.given = batch(model)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: values[index % 4] for name, values in self.given.items()}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # other transformers call it otherwise
def test_checkpointing_repeats_the_reads_of_arrays() -> None:
    ideal = pl.SingleConfig(device=pl.devices.GokmenVlasov(), **PERFECT)
    gradients = []
    for kept in (False, True):
        model = pl.peft.add_adapters(llama(), rank=2, targets=["q_proj"], config=ideal, seed=1)
        for layer in (each for each in model.modules() if isinstance(each, pl.nn.GatedAdapter)):
            layer.set_factors(torch.ones(layer.out_features, 2), torch.ones(2, layer.in_features))
        model.get_input_embeddings().weight.requires_grad_()
        model.train()
        if kept:
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={
                    "use_reentrant": False,
                    "context_fn": pl.nn.replayed_reads,
                }
            )
        model(**batch(model)).loss.backward()
        gradients.append(model.get_input_embeddings().weight.grad)
    torch.testing.assert_close(gradients[1], gradients[0])
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    with pytest.raises(RuntimeError, match="both as gradient_checkpointing_kwargs"):
        model(**batch(model)).loss.backward()


def weight_of(model: nn.Module) -> torch.Tensor:
    *_, layer = (layer for layer in model.modules() if isinstance(layer, AnalogModule))
    return layer.get_weights()[0].cpu()


@pytest.mark.filterwarnings("ignore")  # of the frameworks
def test_the_trainer_of_transformers_trains_saves_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate")
    # Of several GPUs, the Trainer would make a DataParallel.
    monkeypatch.setattr(torch.cuda, "device_count", lambda: min(1, len(DEVICES) - 1))
    model = bert()

    def run(folder: str, steps: int, resume: str | None = None) -> nn.Module:
        analog = convert(model, SINGLE)
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / folder), max_steps=steps, per_device_train_batch_size=4,
            save_steps=2, report_to=[],
            learning_rate=5e-3, disable_tqdm=True, use_cpu=DEVICES == ["cpu"], seed=3,
        )  # fmt: skip
        optimizer = optimizer_of(analog)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
        trainer = transformers.Trainer(
            analog, arguments, train_dataset=Rows(model), optimizers=(optimizer, scheduler)
        )
        trainer.train(resume_from_checkpoint=resume)
        return analog

    whole = run("whole", 4)
    assert not torch.equal(weight_of(whole), weight_of(convert(model, SINGLE)))
    again = run("again", 4, str(tmp_path / "whole" / "checkpoint-2"))
    exact = {"rtol": 0.0, "atol": 0.0}  # on a GPU, torch's own layers need not repeat their bits
    torch.testing.assert_close(
        weight_of(again),
        weight_of(whole),
        **(exact if DEVICES == ["cpu"] else {"rtol": 0.0, "atol": 0.01}),
    )


@pytest.mark.filterwarnings("ignore")
def test_accelerate_trains() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=DEVICES == ["cpu"], gradient_accumulation_steps=2)
    model = vit()
    analog = convert(model, SINGLE).train()
    optimizer = optimizer_of(analog)
    loader = torch.utils.data.DataLoader(Rows(model), batch_size=4)
    before = weight_of(analog)
    ready, optimizer, loader = accelerator.prepare(analog, optimizer, loader)
    for given in loader:
        with accelerator.accumulate(ready):
            loss = ready(**given).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(ready.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    assert not torch.equal(weight_of(analog), before)
    (tile,) = analog.classifier.tiles
    assert tile.counters["mini_batches"] == 1  # two backward passes, one step


@pytest.mark.filterwarnings("ignore")
def test_lightning_trains(tmp_path: Path) -> None:
    lightning = pytest.importorskip("pytorch_lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = convert(vit(), SINGLE).train()

        def training_step(self, given: dict[str, torch.Tensor], _index: int) -> torch.Tensor:
            loss: torch.Tensor = self.model(**given).loss
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(self)

    module = Module()
    before = weight_of(module)
    loader = torch.utils.data.DataLoader(Rows(vit()), batch_size=4)
    trainer = lightning.Trainer(
        max_epochs=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=tmp_path, accelerator="cpu" if DEVICES == ["cpu"] else "auto", devices=1,
    )  # fmt: skip
    trainer.fit(module, loader)
    assert not torch.equal(weight_of(module), before)
    path = tmp_path / "model.ckpt"
    trainer.save_checkpoint(path)
    other = Module()
    other.load_state_dict(torch.load(path, weights_only=False)["state_dict"])
    assert torch.equal(weight_of(other), weight_of(module))
