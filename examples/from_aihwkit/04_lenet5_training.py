"""AIHWKit's example 04: LeNet-5 on analog layers, with the predictions that it gets wrong.

`python 04_lenet5_training.py FOLDER` takes the files of MNIST or Fashion-MNIST instead.
"""

import sys

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, load
from pulsora.training.models import lenet

data = load(sys.argv[1] if len(sys.argv) > 1 else "digits")
torch.manual_seed(1)
config = pl.SingleConfig(device=pl.devices.ConstantStep())
net = lenet(data.shape, data.classes)
model = pl.convert_to_analog(net, config, weight_scaling=0.2, seed=1, threads=1)
print(model)
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.2)
for epoch in range(3):
    total = 0.0
    for x, y in batches(data, batch=16, seed=0, epoch=epoch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch + 1}: loss {total / (len(data.train_x) // 16):.3f}")

model.eval()
with torch.no_grad():
    found = model(torch.from_numpy(data.test_x)).argmax(dim=1)
confusion = torch.zeros(data.classes, data.classes, dtype=torch.int64)
confusion.index_put_((torch.from_numpy(data.test_y), found), torch.tensor(1), accumulate=True)
print("rows: the class of the image; columns: the class that was found")
print(confusion)
score = confusion.diag().sum().item() / len(found)
print(f"accuracy {score:.1%}")
assert score > 0.75
