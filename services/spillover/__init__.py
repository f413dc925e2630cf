"""Spillover: clusters of servers that keep their own queues and act like one.

The rings, innermost first: model, policy, core, then live and sim side by side; see
services/ARCHITECTURE.md. Nothing is imported here, so that a node loads only what it runs.
"""

__version__ = "0.1.0"
