"""The function on a Dask cluster that a handler `dask:ADDRESS:MODULE:FUNCTION` names.

Calling it is in `spillover.live.handlers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spillover.model.addresses import HOST, is_host, shown

_NAME = r"[^\W\d]\w*"
_TARGET = re.compile(
    rf"dask:(?P<scheme>[a-z]+://)?(?P<host>{HOST}):(?P<port>[0-9]{{1,5}})"
    rf":(?P<module>{_NAME}(\.{_NAME})*):(?P<function>{_NAME})"
)
_FORM = "dask:[tcp://]HOST:PORT:MODULE:FUNCTION"


@dataclass(frozen=True, slots=True)
class DaskTarget:
    """A scheduler, and a function that its workers can import."""

    address: str
    """The address of the scheduler, tcp://HOST:PORT."""
    host: str
    port: int
    module: str
    function: str


def is_dask_handler(handler: str) -> bool:
    """Returns whether it is meant to be one."""
    return handler.startswith("dask:")


def dask_target(handler: str) -> DaskTarget:
    """Returns what a handler `dask:ADDRESS:MODULE:FUNCTION` names.

    Raises ValueError with what was expected, in one line.
    """
    match = _TARGET.fullmatch(handler)
    if match is None or not is_host(match["host"]) or not 0 < int(match["port"]) < 65_536:
        raise ValueError(f"expected {_FORM}, got {shown(handler)}")
    if match["scheme"] not in (None, "tcp://"):
        raise ValueError(f"expected {_FORM}, {match['scheme'][:-3]} is not available here")
    host, port = match["host"], int(match["port"])
    return DaskTarget(f"tcp://{host}:{port}", host, port, match["module"], match["function"])
