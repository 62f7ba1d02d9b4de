"""Clips of weights act after the steps of loops that wrap optimisers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 0.0625


class Classifier(torch.nn.Module):
    """A model that returns its loss, as Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3)
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def model_of(clip: str) -> torch.nn.Module:
    config = pl.InferenceConfig(clip=clip, clip_value=LIMIT)
    return pl.convert_to_analog(Classifier(), config, seed=1)


def largest(model: torch.nn.Module) -> float:
    return max(float(layer.weight.detach().abs().max()) for layer in (model.net[0], model.net[2]))


def samples() -> list[dict[str, torch.Tensor]]:
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(2))
    return [{"x": row, "labels": row[:3].argmax()} for row in x]


@pytest.mark.parametrize("clip", ["none", "fixed"])
def test_clips_act_under_accelerate(clip: str) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = model_of(clip)
    data = torch.utils.data.DataLoader(samples(), batch_size=8)  # type: ignore[arg-type]
    ready, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), lr=0.1), data
    )
    for batch in loader:
        optimizer.zero_grad()
        accelerator.backward(ready(**batch)["loss"])
        optimizer.step()
        assert (largest(model) <= LIMIT) == (clip == "fixed")


@pytest.mark.parametrize("clip", ["none", "fixed"])
def test_clips_act_under_trainer(clip: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    model = model_of(clip)
    seen: list[float] = []

    class Note(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            seen.append(largest(model))

    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=3, per_device_train_batch_size=8, learning_rate=0.1,
        report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    transformers.Trainer(model, arguments, train_dataset=samples(), callbacks=[Note()]).train()
    assert len(seen) == 3
    assert all((size <= LIMIT) == (clip == "fixed") for size in seen)
