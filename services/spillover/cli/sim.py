"""`spillover sim MODEL`: the same decisions as the services, in virtual time."""

from __future__ import annotations

import argparse

from spillover.cli.models import Model, add_models, run_model

MODELS = {
    "overflow": Model("sim_overflow", "networked queues: a schedule through a topology"),
    "tokens": Model("sim_tokens", "typed jobs on unlike servers, longest-available token first"),
    "probing": Model("sim_probing", "the distributed queue: probes hop between producers"),
    "rebalance": Model("sim_rebalance", "clients that move when servers come and go"),
    "leases": Model("sim_leases", "partitions shared out over nodes, message by message"),
}

run = run_model


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the models and their options."""
    add_models(parser, MODELS)
