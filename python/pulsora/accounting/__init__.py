"""Ledgers of what hardware would do for a model: events, and with costs energy, time and area."""

from pulsora.accounting.costs import Cost, Costs
from pulsora.accounting.ledgers import EVENTS, Ledger, Row, ledger

__all__ = ["EVENTS", "Cost", "Costs", "Ledger", "Row", "ledger"]
