"""The orders in which the tokens of a pool are taken, by name; `spillover.policy.tokens` has their
rules."""

from __future__ import annotations

LONGEST_AVAILABLE = "longest-available"
LEAST_LOADED = "least-loaded"
ORDERS = (LONGEST_AVAILABLE, LEAST_LOADED)
