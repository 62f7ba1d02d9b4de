"""Tests of an installation on its user's machine: `pulsora selftest`, `pulsora.selftest()`."""

from pulsora.verification.report import Check, SelfTest
from pulsora.verification.run import selftest

__all__ = ["Check", "SelfTest", "selftest"]
