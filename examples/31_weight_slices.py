"""Bits of slices and of their converters: what a programmed network keeps of its accuracy.

A digital network is written into arrays whose weights are pairs of devices, or digits of 8 bits in
slices. Slices have ADCs of their own, whose results are added digitally, or one ADC for their sum;
the ranges of the ADCs are fitted to the network. An ADC of fewer bits is smaller, and conversions
take energy. Needs scikit-learn.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import digits

data = digits()
x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
test = [(torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))]

torch.manual_seed(1)
net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(60):
    order = torch.randperm(len(x))
    for batch in order.split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
        optimizer.step()
accuracy = (net(test[0][0]).argmax(1) == test[0][1]).float().mean()
print(f"digital: {accuracy:.3f}")

memory = pl.noise_models.PCMLike(drift_scale=0.0)
cells = {"pair": {"cell": "pair"}}
for converters in ("apart", "shared"):
    for bits in (4, 2, 1):
        cells[f"{bits} bits, {converters}"] = {
            "cell": "slices", "slice_bits": bits, "slice_converters": converters,
        }  # fmt: skip
adc_bits = (3, 4, 6, 8)
print("cells / bits of an ADC", *adc_bits, "conversions of a read", sep="\t")
for name, settings in cells.items():
    row = []
    for bits in adc_bits:
        io = pl.IOParameters(inp_res=254, out_res=2**bits - 2, out_noise=0.0)
        config = pl.InferenceConfig(noise_model=memory, forward=io, **settings)
        model = pl.convert_to_analog(net, config, seed=1).eval()
        pl.inference.calibrate(model, [x])
        pl.inference.calibrate_outputs(model, [x], quantile=0.9995)
        report = pl.inference.evaluate(model, test, times=["1 s"], programmings=4)
        row.append(f"{report.mean[0]:.3f}")
    tile = model[0].tiles.grid[0][0]
    tile.forward(data.test_x[:1])
    reads = tile.hardware_counts()["reads"]
    print(name, *row, reads[0]["adc"] // reads[0]["samples"] // 48, sep="\t")
