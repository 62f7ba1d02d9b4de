"""Corrections of a programmed model at its present age by sample inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora._internal.batches import inputs_of
from pulsora.inference.exact_reads import exact_reads, layers_by_name
from pulsora.inference.folding import called

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from pulsora.nn.base import AnalogModule

__all__ = ["adapt_batch_norm", "fit_affine"]


@torch.no_grad()
def adapt_batch_norm(model: nn.Module, batches: Iterable[Any]) -> int:
    """Measures mean and variance of all batch norms anew, as reads see the model now; in place.

    Joshi et al., Nat. Commun. 11:2473 (2020). Weights and other layers stay as they are, and no
    gradient is needed.

    Args:
        model: A model in eval() with batch norms that have running statistics.
        batches: Inputs of the model; of pairs (input, target) the input. A tensor is one
            batch. All count alike.

    Returns:
        The number of batch norms.

    Raises:
        TypeError: If batches are none.
        ValueError: If the model is in training mode or has no such layer, and if there is no
            sample. After any error, mean and variance are those of before.
    """
    norms = [
        each
        for each in model.modules()
        if isinstance(each, nn.modules.batchnorm._BatchNorm)  # noqa: SLF001 - torch's base class
        and each.track_running_stats
    ]
    if not norms:
        raise ValueError("the model has no batch norm with running statistics")
    if model.training:
        raise ValueError("the model is in training mode; call eval()")
    inputs = [x for x in inputs_of(batches) if not (isinstance(x, torch.Tensor) and x.numel() == 0)]
    if not inputs:
        raise ValueError("batches gave no sample; give inputs as the model will see them")
    momenta = [norm.momentum for norm in norms]
    before = [{name: each.clone() for name, each in norm.named_buffers()} for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all batches
        norm.train()
    try:
        for x in inputs:
            called(model, x)
    except BaseException:
        for norm, statistics in zip(norms, before, strict=True):
            for name, each in norm.named_buffers():
                each.copy_(statistics[name])
        raise
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()
    return len(norms)


@torch.no_grad()
def fit_affine(model: nn.Module, batches: Iterable[Any]) -> dict[str, Tensor]:
    """Corrects each output of each programmed layer by y' = a y + b, in place, for its present age.

    With y* the exact outputs of the layer for the inputs that it has in the exact model: a =
    cov(y, y*) / var(y), b = mean(y*) - a mean(y). The correction is digital, and lasts until
    `program`, `drift` or `unprogram` is called or a state is loaded. States hold it.

    Args:
        model: A programmed model in eval() with layers of InferenceConfig.
        batches: Inputs of the model; of pairs (input, target) the input. A tensor is one batch.

    Returns:
        The gain a and the offset b of each layer's outputs, [2, out_features], by layer.

    Raises:
        TypeError: If batches are none.
        ValueError: If the model has no such layer or is in training mode, or is not programmed, and
            if there is no batch.
    """
    layers = layers_by_name(model)
    if not layers:
        raise ValueError("the model has no layer of InferenceConfig, whose outputs could be fitted")
    if model.training:
        raise ValueError("the model is in training mode; call eval()")
    arrays: list[Any] = [layer.held for layer in layers.values()]
    for name, held in zip(layers, arrays, strict=True):
        if not held.is_programmed:
            raise ValueError(f"layer '{name}' is not programmed; call pulsora.program(model) first")
    before = [held.affine for held in arrays]
    try:
        for held in arrays:
            held.affine = None
        found = _fitted(model, layers, batches)
    except BaseException:
        for held, affine in zip(arrays, before, strict=True):
            held.affine = affine
        raise
    with torch.inference_mode(mode=False):  # for trainings after a fit in this mode
        for name, held in zip(layers, arrays, strict=True):
            held.affine = found[name].clone() if name in found else None
    return found


def _fitted(
    model: nn.Module, layers: dict[str, AnalogModule], batches: Iterable[Any]
) -> dict[str, Tensor]:
    """Returns gain and offset of each layer's outputs, [2, out_features]."""
    sums: dict[str, Tensor] = {}

    def seen(name: str, x: Tensor) -> None:
        layer = layers[name]
        held: Any = layer.held
        wanted = held.product(x, layer.carrier).double()
        keep, held.exact = held.exact, None
        y = layer.read(x).double()
        held.exact = keep
        ones = torch.ones_like(y)
        terms = torch.stack([ones, y, wanted, y * y, y * wanted]).sum(dim=1)
        sums[name] = sums[name] + terms if name in sums else terms

    with exact_reads(layers, seen):
        for x in inputs_of(batches):
            called(model, x)
    sums = {name: terms for name, terms in sums.items() if int(terms[0].max()) > 0}
    if not sums:
        raise ValueError("batches gave no sample; give inputs as the model will see them")
    found = {}
    for name, (count, y, wanted, squares, products) in sums.items():
        variance = squares / count - (y / count) ** 2
        covariance = products / count - (y / count) * (wanted / count)
        gain = torch.where(variance > 0.0, covariance / variance, torch.ones_like(variance))
        found[name] = torch.stack([gain, wanted / count - gain * y / count]).float()
    return found
