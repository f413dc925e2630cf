"""Options that several commands have: addresses, origins, counts, the times of leases.

`commandline.option_types` reads plain numbers, and `commandline.parsing` is the parser itself. The
commands know what their options do.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

from spillover.apps.http.sites import origin_of
from spillover.commandline.option_types import (
    above_zero,
    at_least_zero,
    did_you_mean_url,
    whole_number,
)
from spillover.live.redis.address import read_url_file
from spillover.model.addresses import is_plain_url
from spillover.model.errors import InputError, blamed_on
from spillover.model.extras import check_extra
from spillover.model.lease_times import LeaseTimes
from spillover.model.nearest import did_you_mean

REDIS_VARIABLE = "SPILLOVER_REDIS_URL"
"""The variable of the environment that may have the address of Redis."""

_LEASE_TIMES_HELP = {
    "normal_lease_ms": "challenge partitions and renew leases once in this time",
    "max_lease_ms": "let a lease that is not renewed last this long",
    "max_shutdown_ms": "give a handler so long to stop once another member has won",
    "min_grab_ms": "keep a won challenge marked for so long after the winner has started",
    "held_delay_ms": "wait so long for each partition held before a challenge is answered",
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
    """Returns the times of those options. Raises InputError if they do not fit together."""
    return LeaseTimes(**{time.name: getattr(options, time.name) for time in fields(LeaseTimes)})


def add_redis_url_file(parser: argparse.ArgumentParser) -> None:
    """Declare --redis-url-file."""
    parser.add_argument(
        "--redis-url-file", metavar="FILE",
        help="read the address of Redis from the first line of this file, such as a mounted "
        "secret; its password may change: it is read again for each connection, on SIGHUP and "
        "each 10 s",
    )  # fmt: skip


def add_config_redis(parser: argparse.ArgumentParser) -> None:
    """Declare --config-redis and --redis-url-file."""
    parser.add_argument(
        "--config-redis", nargs="?", const="", metavar="URL",
        help="take a changed configuration only if this Redis does; without URL that of "
        f"{REDIS_VARIABLE}, whose password `ps` does not show (default: no Redis; nodes tell "
        "each other in any case)",
    )  # fmt: skip
    add_redis_url_file(parser)


def config_redis(options: argparse.Namespace) -> str | Path | None:
    """Returns the address that those options name, or the file that has it; None without them,
    whatever the environment has for others. Raises InputError."""
    if options.config_redis is None and options.redis_url_file is None:
        return None
    return needed_redis_url(options.config_redis, options.redis_url_file, "--config-redis")


def needed_redis_url(given: str | None, file: str | None, option: str = "--redis") -> str | Path:
    """Returns the address of Redis, or the file that has it. Raises InputError without one."""
    url = redis_url(given, file, option)
    if url is None:
        expected = "expected the address of a Redis, here, in --redis-url-file or in "
        raise InputError(option, "", f"{expected}{REDIS_VARIABLE}; got none")
    return url


def redis_url(
    given: str | None, file: str | None = None, option: str = "--redis"
) -> str | Path | None:
    """Returns the address of Redis that is given by an option, or the file that has it, else that
    of the environment, which others cannot read; None without any. Raises InputError."""
    if file is None:
        return given or os.environ.get(REDIS_VARIABLE) or None
    if given:
        raise InputError("--redis-url-file", "", f"expected without an address in {option}")
    with blamed_on("--redis-url-file"):
        read_url_file(file)
    return Path(file)


def add_end_options(parser: argparse.ArgumentParser) -> None:
    """Declare for how long nodes wait at the end."""
    parser.add_argument(
        "--drain-timeout-s", type=at_least_zero, default=30.0, metavar="S",
        help="wait at most so many seconds at the end for requests under way",
    )  # fmt: skip
    parser.add_argument(
        "--results-timeout-s", type=at_least_zero, default=5.0, metavar="S",
        help="of these seconds, wait at most so many for asynchronous results to be fetched",
    )  # fmt: skip


def add_otel(parser: argparse.ArgumentParser) -> None:
    """Declare --otel."""
    parser.add_argument(
        "--otel", action="store_true",
        help="trace requests with OpenTelemetry, as its variables OTEL_* say (extra `otel`)",
    )  # fmt: skip


def check_otel() -> None:
    """Raise InputError where the packages for --otel are missing."""
    check_extra("--otel", "otel", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def add_log_format(parser: argparse.ArgumentParser) -> None:
    """Declare --log-format."""
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text",
        help="write logs to stderr as text or as JSON, which then every line is",
    )  # fmt: skip


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
    """Returns HOST:PORT, the host of an IPv6 address in brackets."""
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
    """Declare --allow-origin."""
    parser.add_argument(
        "--allow-origin", type=origin, action="append", default=[], metavar="ORIGIN",
        help="let pages of this other site make requests, and read errors of the node in front of "
        "a service; may be repeated, * is all sites (default: none)",
    )  # fmt: skip


def add_tokens(parser: argparse.ArgumentParser) -> None:
    """Declare --tokens."""
    parser.add_argument(
        "--tokens", action="append", default=[], metavar="FILE",
        help="let in only who shows an API token of this YAML file (`spillover token new` makes "
        "them); may be repeated; read again each 10 s (default: everybody is let in)",
    )  # fmt: skip


def node_url(text: str) -> str:
    """Returns http://HOST[:PORT] or https://HOST[:PORT], without a path."""
    bare = text.removesuffix("/")
    if not is_plain_url(bare):
        hint = did_you_mean_url(text)
        raise argparse.ArgumentTypeError(f"expected http(s)://HOST[:PORT], got {text!r}{hint}")
    return bare
