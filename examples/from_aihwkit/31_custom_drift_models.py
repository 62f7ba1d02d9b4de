"""AIHWKit's example 31: drift exponents of one's own, as tables over the conductance."""

import torch

import pulsora as pl

tables = {  # conductances in uS, and the exponents there
    "measured": ([0.0, 10.0, 20.0], [0.08, 0.05, 0.03], [0.03, 0.02, 0.01]),
    "constant": ([0.0], [0.06], [0.0]),
}
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
x = torch.randn(200, 32)
exact = net(x).detach()


def distance(y: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """The relative error of each sample's outputs."""
    return (y - exact[: len(y)]).norm(dim=-1) / exact[: len(y)].norm(dim=-1)


errors = {}
for name, (conductances, mean, std) in tables.items():
    nodes = [value / 25.0 for value in conductances]
    memory = pl.noise_models.CustomDrift(g=nodes, nu_mean=mean, nu_std=std)
    config = pl.InferenceConfig(noise_model=memory, forward=pl.IOParameters(is_perfect=True))
    model = pl.convert_to_analog(net, config, seed=1, threads=1).eval()
    report = pl.inference.evaluate(
        model, [(x, torch.zeros(200))], metric=distance, programmings=3, times=["1 s", "1 year"]
    )
    errors[name] = report.mean
    print(f"{name}\n{report}")
# Drift that all devices share is compensated; its spread is not.
assert errors["measured"][1] > errors["constant"][1]
