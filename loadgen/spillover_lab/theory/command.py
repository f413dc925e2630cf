"""`spillover exact MODEL`: compute the results of theory, without simulating."""

from __future__ import annotations

import argparse

from spillover.cli.command import CliCommand
from spillover.cli.models import add_models, run_model

MODELS = {
    "tokens": CliCommand(
        "spillover_lab.theory.exact_tokens",
        "compute blocking and occupancy of a token pool (Comte)",
    ),
    "probing": CliCommand(
        "spillover_lab.theory.exact_probing",
        "compute waits and probes of the distributed queue (Johnson)",
    ),
}

run = run_model


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the models and their options."""
    add_models(parser, MODELS)
