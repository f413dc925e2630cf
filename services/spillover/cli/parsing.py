"""What several commands' options have in common: addresses, origins, counts, the times of leases.

Plain numbers are read by `spillover_loadgen.option_types`, and the parser itself, with its usage
errors and its help, is `spillover_loadgen.parsing`: both commands have them. What options do is
known to the commands.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import fields

from spillover.apps.http.sites import origin_of
from spillover.model.addresses import is_plain_url
from spillover.model.lease_times import LeaseTimes
from spillover.model.nearest import did_you_mean
from spillover_loadgen.option_types import above_zero, did_you_mean_url, whole_number

REDIS_VARIABLE = "SPILLOVER_REDIS_URL"
"""Of the environment."""

_LEASE_TIMES_HELP = {
    "normal_lease_ms": "how often partitions are challenged and leases renewed",
    "max_lease_ms": "how long a lease lasts that is not renewed",
    "max_shutdown_ms": "how long a handler may take to stop once another member has won",
    "min_grab_ms": "how long a won challenge stays marked after the winner has started",
    "held_delay_ms": "waited before answering a challenge, for each partition held",
}


def add_lease_times(parser: argparse.ArgumentParser) -> None:
    """Declare an option for each of the five times."""
    for time in fields(LeaseTimes):
        option = f"--{time.name.replace('_', '-')}"
        help_text = _LEASE_TIMES_HELP[time.name]
        parser.add_argument(
            option, type=above_zero, default=time.default, metavar="MS", help=help_text
        )


def lease_times(options: argparse.Namespace) -> LeaseTimes:
    """As those options have them. Raises InputError if they do not fit together."""
    return LeaseTimes(**{time.name: getattr(options, time.name) for time in fields(LeaseTimes)})


def redis_url(given: str | None) -> str | None:
    """Returns the address of Redis that is given, else that of the environment, which others cannot
    read; None without either."""
    return given or os.environ.get(REDIS_VARIABLE) or None


def add_log_format(parser: argparse.ArgumentParser) -> None:
    """Declare --log-format."""
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="of what goes to stderr"
    )


def whole_number_in(least: int, most: int) -> Callable[[str], int]:
    """Returns an argument type: a whole number of that range."""

    def read(text: str) -> int:
        value = whole_number(text)
        if not least <= value <= most:
            expected = f"expected a whole number from {least} to {most}, got {text!r}"
            raise argparse.ArgumentTypeError(expected)
        return value

    return read


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Returns an argument type: some of these names, with commas, once each."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known or names.count(name) > 1:
                hint = "" if name in known else did_you_mean(name, known)
                expected = f"expected some of {', '.join(known)}, once each; got {name!r}{hint}"
                raise argparse.ArgumentTypeError(expected)
        return names

    return read


def address(text: str) -> tuple[str, int]:
    """HOST:PORT, the host of an IPv6 address in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, got {text!r}")
    return host.strip("[]"), int(port)


def origin(text: str) -> str:
    """Returns an origin of pages: http(s)://HOST[:PORT], or * for all."""
    try:
        return origin_of(text)
    except ValueError:
        expected = "expected http(s)://HOST[:PORT] or *"
        raise argparse.ArgumentTypeError(f"{expected}, got {text!r}") from None


def add_allow_origin(parser: argparse.ArgumentParser) -> None:
    """Of the commands that start nodes."""
    parser.add_argument(
        "--allow-origin",
        type=origin,
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of this other site make requests; may be repeated, * is all sites "
        "(default: none)",
    )


def add_tokens(parser: argparse.ArgumentParser) -> None:
    """Of the commands that start nodes."""
    parser.add_argument(
        "--tokens",
        action="append",
        default=[],
        metavar="FILE",
        help="let in only who shows an API token of this YAML file (`spillover token new` makes "
        "them); may be repeated; read again each 10 s and on SIGHUP (default: everybody is let in)",
    )


def node_url(text: str) -> str:
    """http://HOST[:PORT], without a path."""
    bare = text.removesuffix("/")
    if not is_plain_url(bare):
        hint = did_you_mean_url(text)
        raise argparse.ArgumentTypeError(f"expected http://HOST[:PORT], got {text!r}{hint}")
    return bare
