"""The command line."""

from pulsora.cli.main import app

__all__ = ["app"]
