"""Helpers of the package that are no part of its interface."""
