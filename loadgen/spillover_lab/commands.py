"""The commands of the lab, which `pyproject.toml` names as entry points of `spillover.commands`.

Only their names and summaries are loaded with this module.
"""

from __future__ import annotations

from spillover.cli.command import CliCommand

DEMO = CliCommand(
    "spillover_lab.demo.command", "show bursts vanish: isolated, then networked queues"
)
REPRODUCE = CliCommand(
    "spillover_lab.reproduce.command",
    "compute the figures of the five source documents again, and those of our own policy",
)
BENCH = CliCommand("spillover_lab.bench.command", "measure what Spillover costs, beside its peers")
EXACT = CliCommand("spillover_lab.theory.command", "compute by theory what `sim` estimates")
LEASE_DEMO = CliCommand(
    "spillover_lab.demo.leases.command",
    "show a member killed, one frozen, one added, and each record applied exactly once",
)
SIM_RIVALS = CliCommand(
    "spillover_lab.rivals.command", "simulate `affinity` beside rules of others, and an oracle"
)
