"""Adapters and transformers on programmed arrays are trained on a GPU as on a CPU.

Reads in integers have the bits of the CPU. Products of torch, among them those of adapters in
tensors, are rounded in another way. An input of a layer near the edge between two levels of its
converter may then take the other level, and steps of an optimiser carry this on. So losses of a few
dozen steps, and reports after them, agree to a few per cent.
"""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

AGES = [1.0, 86400.0, 3e7]
CONFIG = pl.InferenceConfig(compensation="none", forward=pl.IOParameters(out_noise=0.01))
ROUGH = CONFIG.replace(noise_model=pl.noise_models.PCMLike(prog_noise_scale=3.0))


def on(device: str, given: Any) -> Any:  # noqa: ANN401 - a model, or batches
    """Returns a copy of a model, or a batch or batches, on a device."""
    if isinstance(given, list | tuple):
        return type(given)(on(device, each) for each in given)
    if isinstance(given, dict):
        return {name: on(device, each) for name, each in given.items()}
    return copy.deepcopy(given).to(device)


def data() -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Returns a network, and inputs with the outputs that it gives."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.randn(128, 12)
    return net, list(zip(x.split(32), net(x).detach().split(32), strict=True))


def error(y: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (y - wanted).square().mean(-1)


def noted(losses: list[float]) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Returns a loss that notes its values in a list."""

    def loss(y: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        found = nn.functional.mse_loss(y, wanted)
        losses.append(found.item())
        return found

    return loss


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [each for each in model.parameters() if each.requires_grad]


def frozen(model: nn.Module) -> dict[str, torch.Tensor]:
    parameters = model.named_parameters()
    return {
        name: each.detach().clone().cpu() for name, each in parameters if not each.requires_grad
    }


def arrays(model: nn.Module) -> list[np.ndarray[Any, Any]]:
    return [tile.weights.copy() for tile in pl.inference.programmed_tiles(model)]


def same(one: list[np.ndarray[Any, Any]], other: list[np.ndarray[Any, Any]]) -> bool:
    return all(map(np.array_equal, one, other))


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_digital_adapters_learn_on_a_drifted_array_as_on_the_cpu(kind: str, device: str) -> None:
    net, batches = data()
    model = pl.peft.add_adapters(
        net, "analog_base_digital_adapter", rank=3, base_config=ROUGH, seed=1
    )
    reports, histories, bases, factors = [], [], [], []
    for place in ("cpu", device):
        each, moved = on(place, model), on(place, batches)
        pl.drift(pl.program(each, 2), AGES[-1])
        before, written = arrays(each), frozen(each)
        optimizer: Any = torch.optim.SGD(trainable(each), lr=2.0, momentum=0.8)
        if kind == "adam":
            optimizer = torch.optim.Adam(trainable(each), 0.02)
        losses: list[float] = []
        report = pl.inference.readapt(
            each, optimizer, noted(losses), moved, AGES, steps=16, metric=error, programming=2
        )
        assert np.mean(losses[12:16]) < 0.7 * np.mean(losses[:4])  # one pass over the batches each
        assert all(np.array(report.after) < np.array(report.before))
        assert report.samples == (512,) * 3
        assert report.multiplications == (512 * 3 * 3 * (12 + 16 + 16 + 4),) * 3
        assert report.pulses == (0, 0, 0)
        assert all(torch.equal(frozen(each)[name], written[name]) for name in written)
        assert same(arrays(each), before)  # the base was never written
        assert {p.device.type for p in each.parameters()} == {torch.device(place).type}
        reports.append(report)
        histories.append(losses)
        bases.append(before)
        factors.append([each[k].a.detach().cpu() @ each[k].b.detach().cpu() for k in (0, 2)])
    assert same(*bases)
    assert histories[1][0] == pytest.approx(histories[0][0], rel=1e-5)  # adapters are 0
    rtol = {"sgd": 2e-2, "adam": 5e-2}[kind]  # Adam takes whole steps along tiny gradients too
    np.testing.assert_allclose(histories[1], histories[0], rtol=rtol)
    np.testing.assert_allclose(reports[1].before, reports[0].before, rtol=rtol)
    np.testing.assert_allclose(reports[1].after, reports[0].after, rtol=rtol)
    for here, there in zip(*factors, strict=True):
        assert (here - there).norm() < 2.0 * rtol * here.norm()


def test_adapters_in_arrays_learn_by_pulses_beside_a_drifted_array(device: str) -> None:
    net, batches = data()
    model = pl.peft.add_adapters(
        net, "analog_base", rank=4, adapter_span="layer", base_config=ROUGH, seed=1,
        config=pl.SingleConfig(device=pl.devices.Idealized()),
    )  # fmt: skip
    reports = []
    for place in ("cpu", device):
        each, moved = on(place, model), on(place, batches)
        optimizer = pl.optim.AnalogSGD(trainable(each), lr=0.2)
        losses: list[float] = []
        reports.append(
            pl.inference.readapt(
                each, optimizer, noted(losses), moved, AGES[-1:], steps=120, metric=error
            )
        )
        assert reports[-1].after[0] < 0.8 * reports[-1].before[0]
        assert reports[-1].pulses[0] > 1000
        assert reports[-1].multiplications == (0,)
    # A gradient that is rounded in another way may send a pulse more or less in many steps.
    assert reports[1].before == pytest.approx(reports[0].before, rel=1e-3)
    assert reports[1].after == pytest.approx(reports[0].after, rel=0.1)
    assert reports[1].pulses == pytest.approx(reports[0].pulses, rel=0.02)


def bank() -> tuple[Any, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Returns a network with an adapter for each age, and its batches."""
    net, batches = data()
    model = pl.peft.add_adapters(
        net, "analog_base_digital_adapter", rank=2, adapters=3, base_config=ROUGH, seed=1,
        gate=lambda _name, _layer: pl.nn.AgeGate(AGES),
    )  # fmt: skip
    return model, batches


def test_a_bank_selects_the_adapters_of_the_cpu(device: str) -> None:
    model, batches = bank()
    with torch.no_grad():
        for adapter in (model[0], model[2]):  # adapters that differ much
            adapter.a.normal_(std=0.3, generator=torch.Generator().manual_seed(2))
    model.eval()
    times = [*AGES, 3600.0, 1e9]  # whose nearest ages are the first three, the second and the third
    settings: Any = {"times": times, "programmings": [0, 3], "metric": error}
    here, there, moved = on("cpu", model), on(device, model), on(device, batches)
    expected = pl.inference.evaluate(here, batches, **settings).values
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*one realisation at a time")
        values = pl.inference.evaluate(there, moved, **settings).values
    gates = there[0].gate, there[2].gate
    for row, (time, adapter) in enumerate(zip(times, (0, 1, 2, 1, 2), strict=True)):
        pl.inference.select_age(there, time)
        assert [gate.nearest(time) for gate in gates] == [adapter] * 2
        assert [gate.task.tolist() for gate in gates] == [adapter] * 2
        for column, number in enumerate((0, 3)):
            pl.drift(pl.program(there, number), time)
            with torch.no_grad():
                found = torch.cat([error(there(x), y) for x, y in moved]).double().mean().item()
                pl.nn.select_task(there, (adapter + 1) % 3)
                other = torch.cat([error(there(x), y) for x, y in moved]).double().mean().item()
                pl.nn.select_task(there, adapter)
            assert values[row, column] == pytest.approx(found, rel=5e-3)
            assert abs(values[row, column] - other) > 0.05 * found  # of another adapter
    np.testing.assert_allclose(values, expected, rtol=5e-3)


def test_a_bank_is_trained_adapter_by_adapter(device: str) -> None:
    model, batches = bank()
    found = []
    for place in ("cpu", device):
        each, moved = on(place, model), on(place, batches)
        optimizer = torch.optim.SGD(trainable(each), lr=2.0, momentum=0.8)
        loss = nn.functional.mse_loss
        pl.inference.readapt(each, optimizer, loss, moved, AGES[:2], steps=12, metric=error)
        a = each[0].a.detach().cpu().reshape(16, 3, 2)
        assert [bool(a[:, k].any()) for k in range(3)] == [True, True, False]
        # The last age has an adapter that is not trained.
        report = pl.inference.evaluate(each, moved, times=AGES, programmings=2, metric=error)
        found.append((a, report.values))
    assert (found[1][0] - found[0][0]).norm() < 2e-2 * found[0][0].norm()
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=2e-2)


TOKENS = (torch.arange(12)[None] * 3 + torch.arange(8)[:, None]) % 40  # counting by threes


def token_losses(y: Any, tokens: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - of transformers
    """Returns the cross entropy of each sample's next tokens."""
    logits = y.logits[:, :-1].transpose(1, 2)
    return nn.functional.cross_entropy(logits, tokens[:, 1:], reduction="none").mean(1)


@pytest.mark.parametrize("clip", ["gaussian", "learned"])
def test_a_transformer_is_trained_for_its_arrays_as_on_the_cpu(clip: str, device: str) -> None:
    from transformer_models import gpt2  # noqa: PLC0415 - skips this test without transformers

    config = pl.InferenceConfig(
        noise_model=pl.noise_models.PCMLike(), modifier="noise_model", clip=clip
    )
    model: Any = pl.convert_to_analog(gpt2(layers=2), config, exclude=["lm_head"], seed=4)
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0  # whose random numbers are torch's of each device
    histories, reports, programmed = [], [], []
    for place in ("cpu", device):
        each, tokens = on(place, model).train(), on(place, TOKENS)
        optimizer = torch.optim.AdamW(trainable(each), lr=1e-2)
        losses = []
        for _ in range(12):
            optimizer.zero_grad()
            loss = each(input_ids=tokens, labels=tokens).loss
            loss.backward()
            nn.utils.clip_grad_norm_(each.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.7 * losses[0]
        histories.append(losses)
        each.eval()
        batches = [({"input_ids": tokens}, tokens)]
        settings: Any = {"metric": token_losses, "times": ["1 s", "1 year"], "programmings": 2}
        report = pl.inference.evaluate(each, batches, **settings).values
        with torch.no_grad():
            for column in range(2):
                pl.program(each, column)
                for row, time in enumerate(("1 s", "1 year")):
                    pl.drift(each, time)
                    alone = token_losses(each(input_ids=tokens), tokens).double().mean().item()
                    assert report[row, column] == pytest.approx(alone, rel=2e-3)
        reports.append(report)
        if place == "cpu":  # a state goes from device to device, programmed as it is
            programmed = arrays(each)
            state, trained = copy.deepcopy(each.state_dict()), report
    np.testing.assert_allclose(histories[1], histories[0], rtol=2e-2)
    np.testing.assert_allclose(reports[1], reports[0], rtol=5e-2)
    loaded = on(device, model).eval()
    loaded.load_state_dict(state)
    assert same(arrays(loaded), programmed)
    batches = [({"input_ids": on(device, TOKENS)}, on(device, TOKENS))]
    report = pl.inference.evaluate(loaded, batches, **settings).values
    np.testing.assert_allclose(report, trained, rtol=5e-3)
