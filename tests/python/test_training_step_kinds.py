"""Recorded training steps of each kind of tile have the bits of the plain loop."""

from __future__ import annotations

import warnings

import pytest
import torch

import pulsora as pl
from pulsora.optim import AnalogAdam, AnalogSGD
from pulsora.training_step import TrainingStep
from training_step_models import (
    ADAPTER,
    batch_of,
    loss_fn,
    model_of,
    needs_gpu,
    plain_step,
    require_same,
)

CELLS = pl.devices.SoftBounds(dw_min=0.01)
CONFIGS = {
    "one array": pl.SingleConfig(device=pl.devices.SoftBounds()),
    "adapter": ADAPTER,
    "adapter of the layer": ADAPTER.replace(adapter_span="layer"),
    "computed cells": ADAPTER.replace(
        visible=ADAPTER.visible.replace(cells="computed"),
        fast=ADAPTER.fast.replace(cells="computed"),
    ),
    "mixed precision": pl.MixedPrecisionConfig(visible=CELLS),
    "mixed precision, products on the tile": pl.MixedPrecisionConfig(
        visible=CELLS, digital_weight=False, transfer_every=2
    ),
    "Tiki-Taka v1": pl.TikiTaka(CELLS, transfer_every=2, gamma=0.3),
    "TTv2": pl.TTv2(CELLS, transfer_every=3, transfer_columns=False),
    "TTv2, three arrays": pl.TTv2(CELLS, [CELLS, CELLS], transfer_every_vec=[1, 4]),
    "c-TTv2": pl.ChoppedTTv2(CELLS, fast_lr=0.1, in_chop_prob=0.3, out_chop_prob=0.3),
    "AGAD, auto_scale": pl.AGAD(CELLS, fast_lr=0.1, auto_scale=True, in_chop_prob=0.3),
    "vector": pl.VectorConfig(devices=[CELLS, CELLS], update_policy="single_random"),
    "reference": pl.ReferenceConfig(visible=CELLS, reference=CELLS),
    "one-sided": pl.OneSidedConfig(
        device=CELLS, refresh_every=2, refresh_upper_thres=0.1, refresh_lower_thres=0.01
    ),
    "hardware-aware": pl.InferenceConfig(
        modifier="add_normal", modifier_std=0.1, clip="gaussian", clip_sigma=2.0
    ),
    "noise model in training": pl.InferenceConfig(
        noise_model=pl.noise_models.PCMLike(), modifier="noise_model", modifier_every="step"
    ),
}


@pytest.mark.filterwarnings("ignore:analog layers ignore momentum")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_property_37_steps_have_the_bits_of_the_plain_loop(
    device: str, config: pl.TileConfig, optimiser: str
) -> None:
    """A scheduler, an evaluation and a smaller batch in between, with transfers and without."""
    models = [model_of(device, config) for _ in range(2)]
    make = {
        "sgd": lambda model: AnalogSGD(model.parameters(), lr=0.1, momentum=0.9),
        "adam": lambda model: AnalogAdam(model.parameters(), lr=0.01, analog_lr=0.01),
    }[optimiser]
    optimizers = [make(model) for model in models]
    schedules = [torch.optim.lr_scheduler.StepLR(each, 7, gamma=0.5) for each in optimizers]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="a layer of InferenceConfig is evaluated")
        step = TrainingStep(models[0], optimizers[0], loss_fn)
        for number in range(18):
            batch = batch_of(number, device, 6 if number == 9 else 10)
            loss = step(*batch)
            assert torch.equal(loss, plain_step(models[1], optimizers[1], *batch)), number
            for schedule in schedules:
                schedule.step()
            if number == 11:
                for model in models:
                    model.eval()
                    model(batch[0])
                    model.train()
    assert step.plain_because is None
    assert (step.recorded_shapes > 0) == (device == "cuda")
    require_same(*models)
