"""A LoRA adapter from PEFT's files, on analog arrays: trained by pulses and saved for PEFT.

On arrays with their noise the adapter computes nearly the same as in torch. Pulses continue where
Adam stopped, and the saved files hold the result, for PEFT or for torch. Neither PEFT nor
transformers is needed. With a model of transformers, `folder` is a folder that PEFT's
`save_pretrained` has written.
"""

from pathlib import Path

import torch
from torch import nn

import pulsora as pl

torch.manual_seed(0)

# 1. A network, and a task that it does not know: its own outputs turned around.
plain = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
x = torch.randn(256, 16)
wanted = plain(x).detach().flip(1)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> float:
    """Return the error after some steps, relative to the outputs."""
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - wanted).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        return ((model(x) - wanted).square().mean() / wanted.square().mean()).item()


# 2. LoRA in torch, stopped early, and saved as PEFT would.
lora = nn.Sequential(pl.nn.GatedAdapter(plain[0], rank=4), nn.Tanh(), plain[2])
plain.requires_grad_(requires_grad=False)
lost = train(lora, torch.optim.Adam([lora[0].a, lora[0].b], lr=0.01), 20)
folder = Path("lora")
print(f"LoRA in torch: error {lost:.3f}")
print(pl.peft.save_adapter(lora, folder))

# 3. The same adapter in arrays of 6T1C cells beside the frozen layers, and further by pulses.
config = pl.SingleConfig(device=pl.devices.SixT1C(), forward=pl.IOParameters(out_noise=0.02))
analog, report = pl.peft.load_adapter(
    plain, folder, "digital_base", config=config, seed=1, threads=1
)
print(report)
optimizer = pl.optim.AnalogSGD([p for p in analog.parameters() if p.requires_grad], lr=0.3)
print(f"in arrays: {train(analog, optimizer, 0):.3f}, ", end="")
further = train(analog, optimizer, 100)
print(f"after 100 steps of pulses: {further:.3f}")
assert report.error < 0.02
assert further < 0.8 * lost

# 4. Back: files for PEFT, and the weights of a plain network.
pl.peft.save_adapter(analog, folder / "further")
merged = pl.peft.merge_adapters(analog)
error = train(merged, torch.optim.SGD(merged.parameters()), 0)
print(f"merged into the layers of torch: {error:.3f}")
