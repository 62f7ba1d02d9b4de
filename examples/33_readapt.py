"""A chip kept alive by a digital adapter that is trained again as the chip ages.

A network is programmed once into pairs of PCM cells without compensation, and drifts for a year at
twice the usual rate. The same chip is evaluated alone, and with a LoRA of rank 8 beside each layer
that gets three epochs at each age, from where it stood. The array is never written again. Needs
scikit-learn.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import digits

torch.manual_seed(0)
data = digits()
x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
batches = list(zip(x.split(32), y.split(32), strict=True))
test = [(torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))]
ages = ["1 s", "1 hour", "1 day", "30 days", "1 year"]

net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for _ in range(8):
    for inputs, wanted in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), wanted).backward()
        optimizer.step()

config = pl.InferenceConfig(
    noise_model=pl.noise_models.PCMLike(g_max=25.0, drift_scale=2.0),
    compensation="none",
    forward=pl.IOParameters(out_noise=0.01),
)
plain = pl.convert_to_analog(net, config, seed=1).eval()
alone = pl.inference.evaluate(plain, test, times=ages, programmings=[0])
print(f"the chip alone\n{alone}\n")

chip = pl.peft.add_adapters(net, "analog_base_digital_adapter", rank=8, base_config=config, seed=1)
adapters = [each for each in chip.parameters() if each.requires_grad]
tiles = pl.inference.programmed_tiles(pl.program(chip))
written = [tile.programming.conductances("programmed") for tile in tiles]
report = pl.inference.readapt(
    chip, torch.optim.Adam(adapters, lr=5e-3), nn.functional.cross_entropy, batches, ages,
    steps=129, test=test,
)  # fmt: skip
numbers = sum(each.numel() for each in adapters)
print(f"with an adapter of {numbers} numbers, trained again at each age\n{report}")
now = [tile.programming.conductances("programmed") for tile in tiles]
same = all((g == before).all() for g, before in zip(now, written, strict=True))
print(f"the base was never written again: {same}")
assert same
assert report.after[-1] > alone.mean[-1] + 0.05
