"""`spillover sim MODEL`: make the decisions of the services in virtual time."""

from __future__ import annotations

import argparse

from spillover.cli.command import CliCommand, added_commands
from spillover.cli.models import add_models, run_model

MODELS = {
    "overflow": CliCommand(
        "spillover.cli.models.sim_overflow",
        "simulate networked queues: a schedule through a topology",
    ),
    "tokens": CliCommand(
        "spillover.cli.models.sim_tokens",
        "simulate typed jobs on unlike servers, longest-available token first",
    ),
    "probing": CliCommand(
        "spillover.cli.models.sim_probing",
        "simulate the distributed queue: probes hop between producers",
    ),
    "rebalance": CliCommand(
        "spillover.cli.models.sim_rebalance", "simulate clients that move when servers come and go"
    ),
    "leases": CliCommand(
        "spillover.cli.models.sim_leases",
        "simulate partitions that nodes share out, message by message",
    ),
    "affinity": CliCommand(
        "spillover.cli.models.sim_affinity",
        "simulate where prompts run among engines that cache what they read",
    ),
}

run = run_model


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the models and their options, then those of the lab."""
    add_models(parser, {**MODELS, **added_commands("sim")})
