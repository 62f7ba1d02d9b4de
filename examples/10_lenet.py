"""LeNet-5 with all its layers analog, trained from end to end on handwritten digits.

It reaches about the accuracy of torch's layers with the same settings. Every patch of an image is a
sample of the pulsed update, so a cell of a convolution takes more pulses than a cell of a large
linear layer.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.plot import plot_accuracy
from pulsora.training.data import batches, digits
from pulsora.training.run import accuracy

# 1. Images of 8 x 8 pixels: three-pixel kernels instead of LeNet's five keep its five layers.
torch.manual_seed(0)
data = digits()
test = torch.from_numpy(data.test_x).reshape(-1, 1, 8, 8), torch.from_numpy(data.test_y)
digital = nn.Sequential(
    nn.Conv2d(1, 6, 3, padding="same"), nn.Tanh(), nn.AvgPool2d(2),
    nn.Conv2d(6, 16, 3, padding="same"), nn.Tanh(), nn.AvgPool2d(2),
    nn.Flatten(),
    nn.Linear(64, 120), nn.Tanh(),
    nn.Linear(120, 84), nn.Tanh(),
    nn.Linear(84, 10),
)  # fmt: skip

# 2. The largest weight of each output becomes 0.3 of the cells' 1.0, which leaves it room to grow.
config = pl.SingleConfig(device=pl.devices.GokmenVlasov())
model = pl.convert_to_analog(digital, config, threads=1, weight_scaling=0.3, scaling_per="output")
print(pl.conversion_report(model))

# 3. The usual loop.
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.2)
history = []
for epoch in range(8):
    for x, y in batches(data, batch=16, seed=0, epoch=epoch):
        optimizer.zero_grad()
        images = torch.from_numpy(x).reshape(-1, 1, 8, 8)
        loss = nn.functional.cross_entropy(model(images), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
    score = accuracy(model, *test)
    history.append({"epoch": epoch + 1, "accuracy": score})
    print(f"epoch {epoch + 1}: accuracy {score:.1%}")

plot_accuracy({"LeNet-5": history}).savefig("lenet.png")

# 4. Pulses per cell in each layer.
for name, layer in model.named_children():
    if isinstance(layer, pl.nn.AnalogModule):
        pulses = sum(counts["pulses"] for counts in layer.statistics())
        print(f"layer {name}: {pulses / layer.analog_weight.numel():.0f} pulses per cell")
assert score > 0.88
