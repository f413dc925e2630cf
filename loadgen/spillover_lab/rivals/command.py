"""`spillover sim rivals`: the model of `sim affinity`, with the rules of others beside ours."""

from __future__ import annotations

import argparse

from spillover.cli.models import sim_affinity
from spillover.sim.affinity.run import RULES
from spillover_lab.rivals.rules import RIVALS

run = sim_affinity.run


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    sim_affinity.configure(parser, {**RULES, **RIVALS})
