"""Adapters that are trained again as a chip ages, and banks of adapters by age."""

from __future__ import annotations

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

AGES = [1.0, 86400.0, 3e7]
CONFIG = pl.InferenceConfig(compensation="none", forward=pl.IOParameters(out_noise=0.01))


def data() -> tuple[torch.nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    """A network, and inputs with the classes that it gives."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    x = torch.randn(128, 12)
    wanted = net(x).argmax(-1).detach()
    return net, list(zip(x.split(32), wanted.split(32), strict=True))


def trained(model: torch.nn.Module) -> torch.optim.Optimizer:
    """An optimiser of what is not frozen."""
    return torch.optim.Adam([each for each in model.parameters() if each.requires_grad], 0.02)


def test_adapters_keep_a_chip_alive() -> None:
    net, batches = data()
    model = pl.peft.add_adapters(
        net, "analog_base_digital_adapter", rank=3, base_config=CONFIG, seed=1
    )
    pl.drift(pl.program(model), AGES[-1])
    seen = [tile.weights.copy() for tile in pl.inference.programmed_tiles(model)]
    calls: list[tuple[int, int]] = []
    report = pl.inference.readapt(
        model, trained(model), torch.nn.functional.cross_entropy, batches, AGES,
        steps=40, progress=lambda *done: calls.append(done),
    )  # fmt: skip
    assert calls[-1] == (120, 120)
    assert report.steps == (40, 40, 40)
    assert report.samples == (1280, 1280, 1280)
    assert min(report.after) >= min(report.before)
    assert report.after[-1] > report.before[-1] + 0.02
    assert not model.training
    for tile, before in zip(pl.inference.programmed_tiles(model), seen, strict=True):
        assert np.array_equal(tile.weights, before)  # the base was never written
    # Three passes over A and B for each sample: 3 x 3 x (12 + 16 + 16 + 4).
    assert report.multiplications == (1280 * 3 * 3 * (12 + 16 + 16 + 4),) * 3
    assert report.pulses == (0, 0, 0)
    assert "1 day" in str(report)


def test_adapters_in_arrays_learn_by_pulses_on_the_chip() -> None:
    net, batches = data()
    outputs = [(x, net(x).detach()) for x, _ in batches]
    model = pl.peft.add_adapters(
        net, "analog_base", rank=4, adapter_span="layer", base_config=CONFIG, seed=1,
        config=pl.SingleConfig(device=pl.devices.Idealized()),
    )  # fmt: skip
    adapters = [each for each in model.parameters() if each.requires_grad]
    report = pl.inference.readapt(
        model, pl.optim.AnalogSGD(adapters, lr=0.2), torch.nn.functional.mse_loss, outputs,
        AGES[-1:], steps=200, metric=lambda y, wanted: (y - wanted).square().mean(-1),
    )  # fmt: skip
    assert report.after[0] < 0.8 * report.before[0]
    assert report.multiplications == (0,)
    assert report.pulses[0] > 1000


def test_a_bank_has_an_adapter_for_each_age() -> None:
    net, batches = data()
    model = pl.peft.add_adapters(
        net, "analog_base_digital_adapter", rank=3, adapters=3, base_config=CONFIG, seed=1,
        gate=lambda _name, _layer: pl.nn.AgeGate(AGES),
    )  # fmt: skip
    pl.inference.readapt(
        model, trained(model), torch.nn.functional.cross_entropy, batches, AGES, steps=30
    )
    a = model[0].a.detach().reshape(16, 3, 3)
    assert all(a[:, k].abs().max() > 0 for k in range(3))
    gate = model[0].gate
    assert [gate.nearest(time) for time in (0.0, 10.0, 3600.0, 1e6, 1e9)] == [0, 0, 1, 1, 2]
    # An evaluation selects the adapter of each time, in one pass or one by one.
    report = pl.inference.evaluate(model, batches, times=AGES, programmings=[0])
    alone = []
    with torch.no_grad():
        for age in AGES:
            pl.drift(pl.program(model), age)
            pl.inference.select_age(model, age)
            hits = [(model(x).argmax(-1) == y).float().mean().item() for x, y in batches]
            alone.append(np.mean(hits))
    assert report.values[:, 0] == pytest.approx(alone)
    loaded = pl.nn.AgeGate([1.0, 2.0, 3.0])
    loaded.load_state_dict(gate.state_dict())
    assert loaded.ages.tolist() == AGES


def test_adapters_for_any_chip_learn_under_noise_drawn_anew() -> None:
    net, batches = data()
    config = CONFIG.replace(modifier="noise_model")
    model = pl.peft.add_adapters(
        net, "analog_base_digital_adapter", rank=4, base_config=config, seed=1
    )
    settings = {"times": [1.0, 3e7], "programmings": 8}
    before = pl.inference.evaluate(model.eval(), batches, **settings)
    pl.inference.unprogram(model)
    optimizer = trained(model.train())
    for _ in range(60):
        for x, wanted in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), wanted).backward()
            optimizer.step()
    gain = pl.inference.evaluate(model.eval(), batches, **settings) - before
    assert gain.mean[1] > 0.02
    assert gain.mean[1] > 3 * gain.standard_error[1]


def test_bad_readaptations_change_nothing() -> None:
    net, batches = data()
    model = pl.peft.add_adapters(net, "analog_base_digital_adapter", base_config=CONFIG, seed=1)
    loss = torch.nn.functional.cross_entropy
    for times, steps, text in (
        ([], 1, "one of each"),
        ([1.0], 0, "one of each"),
        ([2, 1], 1, "older"),
    ):
        with pytest.raises(ValueError, match=text):
            pl.inference.readapt(model, trained(model), loss, batches, times, steps=steps)
    assert pl.inference.programmed_tiles(model)[0].programming.point is None
    whole = pl.convert_to_analog(net, CONFIG, seed=1)
    with pytest.raises(ValueError, match="freeze it"):
        pl.inference.readapt(whole, trained(whole), loss, batches, [1.0])
    with pytest.raises(ValueError, match="no sample"):
        pl.inference.readapt(model, trained(model), loss, [], [1.0], steps=1)
    with pytest.raises(ValueError, match="no AgeGate"):
        pl.inference.select_age(model, 1.0)
    for ages in ([], [2.0, 1.0], [1.0, 1.0], [-1.0], [float("nan")]):
        with pytest.raises(ValueError, match="ages"):
            pl.nn.AgeGate(ages)


def test_arrays_with_a_retention_are_trained_again_as_they_age() -> None:
    net, batches = data()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2.0)
    outputs = [(x, net(x).detach()) for x, _ in batches]
    law = pl.noise_models.PowerLaw(nu_mean=[0.2, 0.2], nu_std=[0.2, 0.2])
    config = pl.LRTTConfig(
        rank=4, transfer_every=0, visible=pl.devices.Idealized(), fast=pl.devices.Idealized(),
        retention=law, retention_fast=pl.noise_models.Exponential(),
    )  # fmt: skip
    model = pl.convert_to_analog(net, config, seed=1)
    report = pl.inference.readapt(
        model, pl.optim.AnalogSGD(model.parameters(), lr=1.0), torch.nn.functional.mse_loss,
        outputs, [3600.0, 86400.0, 3e6], steps=100,
        metric=lambda y, wanted: (y - wanted).square().mean(-1),
    )  # fmt: skip
    assert max(report.after) < 0.6 * min(report.before)
    assert min(report.pulses) > 1000
    ages = next(iter(model[0].tiles)).retention.ages
    assert ages["visible"].time == 3e6  # never pulsed
    assert ages["fast_a"].time == 0.0
    # An evaluation is the loop over the ages, with a reading for each number.
    rows = pl.inference.evaluate(
        model, outputs, times=["1 h", 3e6], programmings=[0, 4],
        metric=lambda y, wanted: (y - wanted).square().mean(-1),
    )  # fmt: skip
    for i, time in enumerate((3600.0, 3e6)):
        for j, redraw in enumerate((0, 4)):
            pl.drift(model, time, redraw=redraw)
            with torch.no_grad():
                found = torch.cat([(model(x) - y).square().mean(-1) for x, y in outputs]).mean()
            assert rows.values[i, j] == pytest.approx(found.item())
    with pytest.raises(ValueError, match="no layer is programmed"):
        pl.inference.evaluate(model, outputs, chips=2)


def test_pulsed_adapters_age_by_the_time_that_passes() -> None:
    net, batches = data()
    outputs = [(x, net(x).detach()) for x, _ in batches]
    model = pl.peft.add_adapters(
        net, "analog_base", rank=4, adapter_span="layer", base_config=CONFIG, seed=1,
        config=pl.SingleConfig(
            device=pl.devices.Idealized(), retention=pl.noise_models.Exponential()
        ),
    )  # fmt: skip
    adapters = [each for each in model.parameters() if each.requires_grad]
    arrays = pl.inference.programming.retaining_arrays(model)
    assert arrays
    seen: list[float] = []

    def ages(_: int, __: int) -> None:
        seen.append(next(iter(arrays[0])).retention.ages["visible"].time)

    pl.inference.readapt(
        model, pl.optim.AnalogSGD(adapters, lr=0.2), torch.nn.functional.mse_loss, outputs,
        [10.0, 50.0], steps=1, metric=lambda y, wanted: (y - wanted).square().mean(-1),
        progress=ages,
    )  # fmt: skip
    assert seen == [0.0, 0.0]
    pl.drift(model, 1e9)
    assert next(iter(arrays[0])).weights.max() == 0.0  # all has leaked
