"""Measures the error that 16 bits add to the rollouts of the ensemble in the package.

    python benchmarks/forecast_rounding.py

It prints a table of Markdown: errors of the means of members over the mean size of these means.
"""

from __future__ import annotations

import numpy as np

from pulsora.forecast import Ensemble, rollout

ROWS = 16


def main() -> None:
    """Prints the table."""
    ensemble = Ensemble.trained()
    features = np.random.default_rng(0).standard_normal((ROWS, 64)).astype(np.float32)
    features[:, 0] = 0.0
    exact, rounded = (
        rollout(ensemble, features, 75, precision=precision).mean
        for precision in ("float32", "float16")
    )
    print("| steps | mean error | largest error | spread between the members |")
    print("| --- | --- | --- | --- |")
    for step in (1, 10, 32, 75):
        size = np.abs(exact[:, :, step - 1]).mean()
        error = np.abs(rounded - exact)[:, :, step - 1] / size
        spread = exact[:, :, step - 1].std(0).mean() / size
        print(f"| {step} | {error.mean():.1e} | {error.max():.1e} | {spread:.2f} |")


if __name__ == "__main__":
    main()
