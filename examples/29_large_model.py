"""A model that is never in memory as a digital one: from the meta device to tiles and files."""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

import pulsora as pl

CONFIG = pl.LRTTConfig(rank=8, visible=pl.devices.EcRam(), transfer_every=1)
FOLDER = Path(tempfile.mkdtemp())


def make_model() -> nn.Module:
    """Makes a model of four layers, on torch's default device."""
    wide = [nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(3)]
    return nn.Sequential(*wide, nn.Linear(512, 10))


# 1. A file with trained weights, as a hub would give it.
torch.manual_seed(0)
save_file(make_model().state_dict(), FOLDER / "model.safetensors")

# 2. The same model without memory, and what it will take on tiles.
with torch.device("meta"):
    model = make_model()
print(pl.model_memory(model, CONFIG))

# 3. Cells are made at once, and weights come from the file, one tensor after another.
model = pl.convert_to_analog(model, CONFIG, weight_scaling="abs_max", seed=1, inplace=True)
print(pl.load_weights(model, FOLDER / "model.safetensors"))

# 4. Training, and a saved model that goes on with the same bits.
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
x, y = torch.rand(32, 512), torch.randint(10, (32,))
loss = nn.functional.cross_entropy(model(x), y)
loss.backward()
optimizer.step()
pl.save(model, FOLDER / "saved")
with torch.device("meta"):
    again = make_model()
again = pl.convert_to_analog(again, CONFIG, weight_scaling="abs_max", inplace=True)
pl.load(again, FOLDER / "saved")
print("the same output:", torch.equal(model.eval()(x), again.eval()(x)))
