"""Ensembles of gated recurrent units, and forecasts of weights by one."""
