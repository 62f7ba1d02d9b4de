"""Paths of torch that take the weights of a layer without calling it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogLinear, AnalogModule

CONFIGS = {
    "pulsed": pl.SingleConfig(device=pl.devices.ConstantStep(w_max=1.0, w_min=-1.0)),
    "programmed": pl.InferenceConfig(),
    "mixed precision": pl.MixedPrecisionConfig(),
}
X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])


def encoder_of(layers: int) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, layers) if layers else layer


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_fused_encoders_read_the_tiles(config: pl.config.TileConfig, layers: int) -> None:
    with pytest.warns(UserWarning, match="out_proj"):
        model = pl.convert_to_analog(encoder_of(layers), config, seed=1).eval()
    if isinstance(config, pl.InferenceConfig):
        pl.program(model)
    with torch.no_grad():
        first, second = (model(X, src_key_padding_mask=MASK) for _ in range(2))
    assert not torch.equal(first[0], second[0])  # the noise of two reads
    analog = [layer for layer in model.modules() if isinstance(layer, AnalogLinear)]
    assert len(analog) == 2 * max(layers, 1)
    for layer in analog:
        assert [tile.evaluated for tile in layer.tiles] == [2 * 2 * 5]


@pytest.mark.parametrize("layers", [0, 2])
def test_a_digital_copy_of_an_encoder_is_as_before(layers: int) -> None:
    encoder = encoder_of(layers).eval()
    with pytest.warns(UserWarning, match="out_proj"):
        model = pl.convert_to_analog(encoder, pl.InferenceConfig(), seed=1).eval()
    with torch.no_grad():
        wanted, found = encoder(X), pl.convert_to_digital(model)(X)
    torch.testing.assert_close(found, wanted)


def test_layers_that_were_put_into_an_encoder_are_read_once_they_are_programmed() -> None:
    model = encoder_of(0).eval()
    assert isinstance(model, nn.TransformerEncoderLayer)
    model.linear1 = AnalogLinear(8, 16, config=pl.InferenceConfig())  # type: ignore[assignment]
    with torch.no_grad():
        pl.program(model)(X)
    assert [tile.evaluated for tile in model.linear1.tiles] == [10]


def test_an_evaluation_names_layers_that_the_model_does_not_read() -> None:
    class Bypass(nn.Module):
        """Takes a weight without calling its layer."""

        def __init__(self) -> None:
            super().__init__()
            self.read = AnalogLinear(8, 8, config=pl.InferenceConfig(), seed=1)
            self.taken = AnalogLinear(8, 4, config=pl.InferenceConfig(), seed=2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(self.read(x), self.taken.weight)

    batches = [(X[:, 0], torch.tensor([0, 1]))]
    with pytest.warns(UserWarning, match=r"did not read layer AnalogLinear \[4, 8\], so that"):
        pl.inference.evaluate(Bypass().eval(), batches, times=[1.0], programmings=1)


@pytest.mark.parametrize("kind", ["pulsed", "programmed"])
def test_attention_that_would_bypass_an_analog_projection_is_refused(kind: str) -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    attention.out_proj = AnalogLinear(8, 8, config=CONFIGS[kind])  # type: ignore[assignment]
    assert isinstance(attention.out_proj, AnalogModule)
    if kind == "programmed":
        with pytest.raises(RuntimeError, match="tiles of that layer would not be read"):
            pl.program(attention)
        return
    for grad in (False, True):
        with torch.set_grad_enabled(grad), pytest.raises(RuntimeError, match="tiles would not be"):
            attention(X, X, X)
