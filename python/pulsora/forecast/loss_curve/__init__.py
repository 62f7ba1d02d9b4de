"""Forecasts of loss curves."""
