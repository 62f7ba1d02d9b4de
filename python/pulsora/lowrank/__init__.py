"""Fast digital low-rank adapters: y = base + scale ((x v) * codes) u^T, and its gradients.

    y = pl.lowrank.gated_low_rank(x, v, codes, u, u_layout="kn", scale=2.0, base=layer(x))

takes tensors of torch on the CPU or a GPU, in float32, float16, bfloat16 or float64, and works
with autograd, vmap, torch.compile, autocast and checkpointing as torch's own products do.
`gated_low_rank_linear` computes the layer as well, in one operation: y = x weight^T + bias + the
update. `adapter_gradients` gives dA and dB of an adapter C = A B, or one of them, and
`adapter_product` is C = A B with these gradients; `validate` compares with double precision, and
`benchmark` with the speed of PyTorch and the bandwidth of memory.
"""

from pulsora.lowrank import vmap as _vmap  # noqa: F401 - registers the rules of torch.vmap
from pulsora.lowrank.functional import adapter_gradients, adapter_product, gated_low_rank
from pulsora.lowrank.linear import gated_low_rank_linear
from pulsora.lowrank.measure import Benchmark, Validation, benchmark, validate

__all__ = [
    "Benchmark",
    "Validation",
    "adapter_gradients",
    "adapter_product",
    "benchmark",
    "gated_low_rank",
    "gated_low_rank_linear",
    "validate",
]
