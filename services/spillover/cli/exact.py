"""`spillover exact MODEL`: what theory says, without simulating."""

from __future__ import annotations

import argparse

from spillover.cli.models import Model, add_models, run_model

MODELS = {
    "tokens": Model("exact_tokens", "blocking and occupancy of a token pool (Comte)"),
    "probing": Model("exact_probing", "waits and probes of the distributed queue (Johnson)"),
}

run = run_model


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the models and their options."""
    add_models(parser, MODELS)
