"""AIHWKit's example 35: a model in bfloat16. Tiles compute in single precision, as ever."""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits

data = digits()
torch.manual_seed(1)
net = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)),
    nn.Conv2d(1, 8, 3),
    nn.ReLU(),
    nn.Conv2d(8, 16, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Dropout(0.1),
    nn.Flatten(),
    nn.Linear(64, 32),
    nn.ReLU(),
    nn.Dropout(0.1),
    nn.Linear(32, 10),
)
model = pl.convert_to_analog(net, pl.InferenceConfig(), seed=1, threads=1).to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    for x, y in batches(data, batch=16, seed=0, epoch=epoch):
        optimizer.zero_grad()
        out = model(torch.from_numpy(x).to(torch.bfloat16))
        loss = nn.functional.cross_entropy(out.float(), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {loss:.3f}")
assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
assert out.dtype == torch.bfloat16
pl.program(model.eval())
with torch.no_grad():
    found = model(torch.from_numpy(data.test_x).to(torch.bfloat16)).argmax(dim=1)
score = (found == torch.from_numpy(data.test_y)).float().mean().item()
print(f"accuracy {score:.1%}")
assert score > 0.85
