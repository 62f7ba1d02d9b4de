"""AIHWKit's example 29: a Krylov solver in floating point with a preconditioner on a tile.

The preconditioner is a matrix of noisy cells, read with noise, so the solver has to be flexible:
each step keeps the direction that it got. ECRAM takes the place of ReRamSB. Needs SciPy.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse import diags_array, eye_array, kron
from scipy.sparse.linalg import spilu

import pulsora as pl

Step = Callable[[np.ndarray], np.ndarray]

# Poisson's equation on a grid of 10 x 10 points.
line = diags_array([-np.ones(9), 2 * np.ones(10), -np.ones(9)], offsets=[-1, 0, 1])
a = (kron(line, eye_array(10)) + kron(eye_array(10), line)).tocsc()
n = a.shape[0]
b = np.ones(n)

digital = spilu(a, drop_tol=0.1).solve(np.eye(n))  # incomplete LU, as a dense matrix
scale = np.abs(digital).max() / 0.5


def analog(noise: float) -> Step:
    """The preconditioner by reads of a tile, whose outputs have this noise."""
    reads = pl.IOParameters(out_noise=noise, inp_res=1 / 1022, out_res=0.0, out_bound=0.0)
    config = pl.SingleConfig(device=pl.devices.EcRam(), forward=reads)
    tile = pl.Tile(n, n, config, seed=1)
    tile.weights = (digital / scale).astype(np.float32)
    return lambda v: scale * tile.forward(v.astype(np.float32)).astype(np.float64)


def fgmres(precondition: Step, steps: int = 12) -> list[float]:
    """Flexible GMRES (Saad 1993); returns the norm of the residual after each step."""
    basis, directions, norms = [b / np.linalg.norm(b)], [], [np.linalg.norm(b)]
    for _ in range(steps):
        directions.append(precondition(basis[-1]))
        w = a @ directions[-1]
        for v in basis + basis:  # twice, for rounding
            w -= (v @ w) * v
        basis.append(w / np.linalg.norm(w))
        columns = np.array([a @ z for z in directions]).T
        y = np.linalg.lstsq(columns, b, rcond=None)[0]
        norms.append(float(np.linalg.norm(b - columns @ y)))
    return norms


found = {
    "none": fgmres(lambda v: v),
    "digital": fgmres(lambda v: digital @ v),
    "analog, noise 0.02": fgmres(analog(0.02)),
    "analog, noise 0.06": fgmres(analog(0.06)),
}
for name, norms in found.items():
    print(f"{name:18}" + "".join(f"{norm:10.2e}" for norm in norms[::3]))
assert found["digital"][-1] < found["analog, noise 0.02"][-1] < found["none"][-1]
