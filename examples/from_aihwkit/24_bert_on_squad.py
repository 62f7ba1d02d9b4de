"""AIHWKit's example 24, small: BERT finds answers in a text, trained hardware-aware, and drifts.

The network begins at random, and the text is made: random tokens, among which two marks stand at
the first and the last token of the answer. Needs transformers.
"""

import torch
from transformers import BertConfig, BertForQuestionAnswering

import pulsora as pl

LENGTH, WORDS = 16, 24
sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
torch.manual_seed(0)
net = BertForQuestionAnswering(
    BertConfig(vocab_size=WORDS, intermediate_size=96, max_position_embeddings=LENGTH, **sizes)
)
config = pl.InferenceConfig(
    noise_model=pl.noise_models.PCMLike(),
    compensation="global",
    modifier="add_normal",
    modifier_std=0.03,
    forward=pl.presets.io(w_noise=0.0175, w_noise_type="pcm_read"),
)
model = pl.convert_to_analog(net, config, seed=1, threads=1)


def questions(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [count, LENGTH]; first and last place of the answers."""
    tokens = torch.randint(4, WORDS, (count, LENGTH))
    start = torch.randint(2, LENGTH - 3, (count,))
    end = start + torch.randint(1, 4, (count,))
    rows = torch.arange(count)
    tokens[:, 0] = 1
    tokens[rows, start] = 2
    tokens[rows, end] = 3
    return tokens, torch.stack([start, end], dim=1)


def exact(output: object, places: torch.Tensor) -> torch.Tensor:
    """1 for each question whose answer is found exactly."""
    found = torch.stack([output.start_logits.argmax(1), output.end_logits.argmax(1)], dim=1)
    return (found == places).all(dim=1).float()


optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _ in range(80):
    tokens, places = questions(32)
    optimizer.zero_grad()
    output = model(tokens, start_positions=places[:, 0], end_positions=places[:, 1])
    output.loss.backward()
    optimizer.step()
tokens, places = questions(200)
test = [({"input_ids": tokens}, places)]
report = pl.inference.evaluate(
    model.eval(), test, metric=exact, programmings=2, times=["1 s", "1 day", "1 year"]
)
print(report)
assert report.mean[0] > 0.8
