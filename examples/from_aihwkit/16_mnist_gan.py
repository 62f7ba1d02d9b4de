"""AIHWKit's example 16, small: a generative adversarial network in mixed precision.

Digits of 8 x 8 pixels take the place of MNIST. Both networks are analog.
"""

import torch
from matplotlib.figure import Figure
from torch import nn

import pulsora as pl
from pulsora.training.data import digits

real = torch.from_numpy(digits().train_x)
low, high = real.min(), real.max()
real = (real - low) / (high - low)  # 0 to 1, as the generator's sigmoid gives
noise_size, width, batch = 16, 32, 64
generator = nn.Sequential(
    nn.Linear(noise_size, width), nn.BatchNorm1d(width), nn.ReLU(),
    nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(),
    nn.Linear(2 * width, 64), nn.Sigmoid(),
)  # fmt: skip
discriminator = nn.Sequential(nn.Linear(64, 2 * width), nn.LeakyReLU(0.2), nn.Linear(2 * width, 1))
torch.manual_seed(1)
for network in (generator, discriminator):
    for layer in network:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
config = pl.presets.EcRamMOMixedPrecision()
make = {"weight_scaling": "sigma", "threads": 1}
generator = pl.convert_to_analog(generator, config, seed=1, **make)
discriminator = pl.convert_to_analog(discriminator, config, seed=2, **make)
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
loss = nn.functional.binary_cross_entropy_with_logits
distances = []
for step in range(401):
    images = real[torch.randint(len(real), (batch,))]
    fake = generator(torch.randn(batch, noise_size))
    of_discriminator.zero_grad()
    right = discriminator(torch.cat([images, fake.detach()]))
    truth = torch.cat([torch.ones(batch, 1), torch.zeros(batch, 1)])
    loss(right, truth).backward()
    of_discriminator.step()
    of_generator.zero_grad()
    loss(discriminator(fake), torch.ones(batch, 1)).backward()
    of_generator.step()
    if step % 100 == 0:
        distances.append(torch.cdist(fake.detach(), real).min(dim=1).values.mean().item())
        print(f"step {step}: a generated image is {distances[-1]:.2f} from the nearest real one")
axes = (figure := Figure()).subplots(4, 4)
for place, image in zip(axes.flat, fake.detach().numpy(), strict=False):
    place.imshow(image.reshape(8, 8), cmap="gray_r")
figure.savefig("generated.png")
assert distances[-1] < 0.75 * distances[0]
