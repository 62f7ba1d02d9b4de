"""Fuzzing: hostile and random inputs for everything that a caller or a file can hand to Pulsora.

`python -m tests.fuzz --seconds 600` tries all targets; CONTRIBUTING.md says more. Each module named
in TARGETS has a function `run(draws)` that tries one input, which its seed alone decides.
"""

TARGETS = (
    "configurations",
    "states",
    "layers",
    "calls",
    "allocations",
    "adapters",
    "bits",
    "sharded",
    "late_errors",
    "interrupted_steps",
    "written_files",
    "parameter_order",
    "hostile_calls",
    "copies",
    "conductances",
)
