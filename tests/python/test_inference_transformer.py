"""A GPT-2 of two layers on programmed arrays: trained for them, programmed, drifted, adapted."""

from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any

import pytest
import torch

import pulsora as pl
from transformer_models import gpt2

if TYPE_CHECKING:
    from torch import nn

CONFIG = pl.InferenceConfig(
    noise_model=pl.noise_models.PCMLike(), modifier="noise_model", clip="gaussian", clip_sigma=2.5
)
TOKENS = (torch.arange(12)[None] * 3 + torch.arange(8)[:, None]) % 40  # counting by threes
BATCH = {"input_ids": TOKENS, "labels": TOKENS}


def converted() -> nn.Module:
    """GPT-2 with its Conv1D on arrays; the head shares its weight with the table of tokens."""
    return pl.convert_to_analog(gpt2(layers=2), CONFIG, exclude=["lm_head"], seed=4)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    model.train()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(**BATCH).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def optimizer_of(model: nn.Module, lr: float = 1e-2) -> torch.optim.AdamW:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)


def through_a_file(state: Any) -> Any:  # noqa: ANN401 - a state of a model or optimiser
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    """A model after 60 steps of training in front of its noise model; dropout is off."""
    torch.manual_seed(0)
    model = converted()
    for layer in model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    losses = train(model, optimizer_of(model), 60)
    assert losses[-1] < 0.1 * losses[0]
    return model.eval()


def token_losses(y: Any, tokens: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - of transformers
    """Cross entropy of each sample's next tokens."""
    logits = y.logits[:, :-1].transpose(1, 2)
    return torch.nn.functional.cross_entropy(logits, tokens[:, 1:], reduction="none").mean(1)


def test_training_is_saved_and_resumed_to_the_bit() -> None:
    runs = []
    for parts in ((4,), (2, 2)):
        torch.manual_seed(1)
        model = converted()
        optimizer = optimizer_of(model)
        for part in parts:
            state, moments = copy.deepcopy(model.state_dict()), optimizer.state_dict()
            random = torch.get_rng_state()  # of dropout
            model = converted()
            model.load_state_dict(through_a_file(state))
            optimizer = optimizer_of(model)
            optimizer.load_state_dict(through_a_file(moments))
            torch.set_rng_state(random)
            train(model, optimizer, part)
        runs.append(model)
    for (name, one), other in zip(runs[0].named_parameters(), runs[1].parameters(), strict=True):
        assert torch.equal(one, other), name


def test_a_programmed_model_drifts_and_goes_on_from_its_state(trained: nn.Module) -> None:
    model = copy.deepcopy(trained)
    with torch.no_grad():
        seen = {}
        pl.program(model, number=2)
        for time in ("1 h", "1 year"):
            seen[time] = pl.drift(model, time)(TOKENS).logits
        other = converted().eval()
        other.load_state_dict(through_a_file(model.state_dict()))
        assert torch.equal(other(TOKENS).logits, pl.drift(model, "1 year")(TOKENS).logits)
        assert torch.equal(pl.drift(other, "1 h")(TOKENS).logits, seen["1 h"])
        assert not torch.equal(seen["1 h"], seen["1 year"])


def test_an_evaluation_is_the_loop_of_programming_and_drift(trained: nn.Module) -> None:
    model = copy.deepcopy(trained)
    batches = [({"input_ids": TOKENS}, TOKENS)]
    report = pl.inference.evaluate(
        model, batches, metric=token_losses, times=["1 s", "1 year"], programmings=2
    )
    with torch.no_grad():
        for column in range(2):
            pl.program(model, column)
            for row, time in enumerate(("1 s", "1 year")):
                pl.drift(model, time)
                alone = token_losses(model(input_ids=TOKENS), TOKENS).mean()
                assert report.values[row, column] == pytest.approx(float(alone), rel=1e-4)
    assert report.mean[1] > report.mean[0]  # no compensation


def test_adapters_learn_on_the_drifted_chip_and_are_resumed(trained: nn.Module) -> None:
    digital = pl.convert_to_digital(trained)
    rough = pl.noise_models.PCMLike(prog_noise_scale=20.0)  # a chip that harms so small a model
    base = pl.InferenceConfig(noise_model=rough)

    def adapted() -> nn.Module:
        return pl.peft.add_adapters(
            digital, "analog_base_digital_adapter", rank=2, base_config=base,
            exclude=["lm_head"], seed=4,
        )  # fmt: skip

    model = adapted()
    before = {
        name: parameter.clone()
        for name, parameter in model.named_parameters()
        if not parameter.requires_grad
    }
    pl.drift(pl.program(model.eval(), 1), "1 year")
    with torch.no_grad():
        first = float(token_losses(model(TOKENS), TOKENS).mean())
    optimizer = optimizer_of(model, lr=3e-2)
    for _ in range(40):
        optimizer.zero_grad()
        token_losses(model(TOKENS), TOKENS).mean().backward()
        optimizer.step()
    with torch.no_grad():
        last = float(token_losses(model(TOKENS), TOKENS).mean())
    assert last < 0.25 * first
    for name, parameter in model.named_parameters():
        if name in before:
            assert torch.equal(parameter, before[name]), name
    other = adapted().eval()
    other.load_state_dict(through_a_file(model.state_dict()))
    with torch.no_grad():
        pl.drift(model, "1 day")
        pl.drift(other, "1 day")
        assert torch.equal(other(TOKENS).logits, model(TOKENS).logits)
