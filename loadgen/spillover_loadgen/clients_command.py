"""The options of `spillover-loadgen clients`, and what it prints."""

from __future__ import annotations

import argparse
from typing import Any

from spillover.commandline.option_types import above_zero, at_least_zero, whole_number
from spillover.commandline.parsing import add_json, add_seed
from spillover.commandline.terminal import listed, open_console, say, show_table, table_of
from spillover.model.errors import InputError
from spillover_loadgen.clients_driver import RULES, ClientsLoad
from spillover_loadgen.targets import node_url

SUMMARY = "have many connected clients that follow the federation's membership"
DESCRIPTION = """\
Have many clients connect, each with a session of its own, follow changes of the federation, and
send requests to the node that each is connected to.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--node", type=node_url, action="append", required=True, metavar="URL",
        help="a node to begin with; repeat it to have clients begin at any of them",
    )  # fmt: skip
    parser.add_argument(
        "--clients", type=whole_number, required=True, metavar="N", help="the number of clients"
    )
    parser.add_argument(
        "--rule", choices=RULES, default=RULES[0],
        help="let clients choose by this rule when the list of nodes changes",
    )  # fmt: skip
    parser.add_argument(
        "--virtual-nodes", type=whole_number, default=1, metavar="K",
        help="with consistent-hash: put each node so often on its circle",
    )  # fmt: skip
    parser.add_argument(
        "--duration-s", type=above_zero, required=True, metavar="D",
        help="the time that clients stay",
    )  # fmt: skip
    parser.add_argument(
        "--change-wait-s", type=at_least_zero, default=5.0, metavar="S",
        help="let clients wait up to so long before they act on a change",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=at_least_zero, default=0.0, metavar="R",
        help="make so many requests per second, all clients together, at exponential intervals",
    )  # fmt: skip
    parser.add_argument(
        "--service-ms", type=at_least_zero, default=5.0, metavar="MS",
        help="the service time of each request, for the handlers sleep and spin",
    )  # fmt: skip
    add_seed(parser)
    add_json(parser, "print the result as one JSON object")


def load_of(options: argparse.Namespace) -> ClientsLoad:
    """Returns what the options ask for. Raises InputError naming the option."""
    for name in ("clients", "virtual_nodes"):
        if getattr(options, name) < 1:
            option, got = f"--{name.replace('_', '-')}", getattr(options, name)
            raise InputError(option, "", f"expected a number of at least 1, got {got}")
    return ClientsLoad(
        nodes=tuple(dict.fromkeys(options.node)),
        clients=options.clients,
        rule=options.rule,
        virtual_nodes=options.virtual_nodes,
        duration_s=options.duration_s,
        change_wait_s=options.change_wait_s,
        rate_per_s=options.rate,
        service_ms=options.service_ms,
        seed=options.seed,
    )


def print_summary(result: dict[str, Any]) -> None:
    """The result as a table, on stderr."""
    console = open_console()
    table = table_of("node", ("clients",), title=f"{result['rule']}, seed {result['seed']}")
    for server, count in result["clients"].items():
        table.add_row(server, str(count))
    show_table(console, table)
    counts = ("unconnected", "moved", "lost", "put_off", "lies")
    say(console, listed({name: result[name] for name in counts}))
    say(console, "requests: " + listed(result["requests"]))
    for reason, count in result["reasons"].items():
        say(console, f"{count} x {reason}")
