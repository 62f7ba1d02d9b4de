"""AIHWKit's example 36, small: a GPT-2 from a configuration, trained hardware-aware, drifting."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import pulsora as pl

torch.manual_seed(0)
sizes = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
net = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
config = pl.InferenceConfig(modifier="add_normal", modifier_std=0.03, compensation="global")
# The layers of the blocks, which are Conv1D, are analog; the head shares the table's weight.
model = pl.convert_to_analog(net, config, exclude=["lm_head"], seed=1, threads=1)
text = (torch.arange(4096) * 7 % 61).reshape(128, 32)  # tokens that follow from those before
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(60):
    x = text[step * 8 % 128 :][:8]
    optimizer.zero_grad()
    model(input_ids=x, labels=x).loss.backward()
    optimizer.step()


def loss(output: object, tokens: torch.Tensor) -> torch.Tensor:
    """The loss of each token."""
    logits = output.logits[:, :-1].flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten(), reduction="none")


report = pl.inference.evaluate(
    model.eval(),
    [({"input_ids": text[:32]}, text[:32])],
    metric=loss,
    programmings=2,
    times=["1 s", "1 day", "1 year"],
)
print(report)
assert report.mean[0] < 3.0  # the logarithm of 64 tokens is 4.2
