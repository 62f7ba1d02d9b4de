"""Sweeps: many runs of `pulsora train` with other settings, chosen by Optuna.

A sweep has the same trials however often it is stopped and resumed, and in however many processes
it runs. Every choice has a seed of its own, made of the sweep's seed, the number of the trial and
the name of the setting; and trials are chosen in groups, each from the results of whole groups.
"""
