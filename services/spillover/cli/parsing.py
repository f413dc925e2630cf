"""Reading options: argument types that say what they expect, and usage errors in one line."""

from __future__ import annotations

import argparse
import math
import sys
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Tells a usage error in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


def positive(text: str) -> float:
    """A finite number above 0."""
    value = _number(text)
    if not value > 0.0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def at_least_zero(text: str) -> float:
    """A finite number, 0 or more."""
    value = _number(text)
    if value < 0.0:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return value


def address(text: str) -> tuple[str, int]:
    """HOST:PORT, the host of an IPv6 address in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, got {text!r}")
    return host.strip("[]"), int(port)


def node_url(text: str) -> str:
    """http://HOST[:PORT], without a path."""
    scheme, separator, rest = text.partition("://")
    if scheme != "http" or not separator or not rest.strip("/") or "/" in rest.strip("/"):
        raise argparse.ArgumentTypeError(f"expected http://HOST[:PORT], got {text!r}")
    return text.rstrip("/")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}")
    return value
