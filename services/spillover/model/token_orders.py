"""In which order the tokens of a pool are taken, by name. What the names mean is in
`spillover.policy.tokens`."""

from __future__ import annotations

LONGEST_AVAILABLE = "longest-available"
LEAST_LOADED = "least-loaded"
ORDERS = (LONGEST_AVAILABLE, LEAST_LOADED)
