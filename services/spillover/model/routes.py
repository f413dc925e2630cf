"""Routes say in the configuration what the beginning of a request tells of it, as it passes through
a cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from spillover.model.errors import InputError
from spillover.model.limits import above, check_limits
from spillover.model.work_source import WorkSource

_PATH_PREFIX = re.compile(r"/[!-~]*")
_METHOD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Requests that pass through a cluster, by how they begin."""

    path: str
    """The path of such a request begins with this."""
    methods: tuple[str, ...] = ()
    """Their methods.

    Why: without it all methods are meant."""
    type: str | None = None
    """The type of requests that do not say theirs.

    Why: services mostly have one kind of work."""
    deadline_ms: Annotated[float | None, above(0)] = None
    """How long a request may wait for the head of its answer, if it does not say that itself. Not
    set: `default_deadline_ms`.

    Why: only the head is awaited by it. An answer that has begun may take as long as it likes."""
    work: WorkSource | None = None
    """The part of such a request that its time grows with, as `work` of the cluster has it; 1:
    none. Not set: that of the cluster.

    Why: paths of one service differ in what says how long a request takes."""
    unqueued: bool = False
    """It runs beside the servers at once, and here: at most 64 such requests at a time, each within
    its deadline, answer and all.

    Why: what takes a server's time must be counted. Health checks and preflights do not."""
    sse_error_event: bool = False
    """An answer of type `text/event-stream` that breaks off between two events ends with one more,
    `data: {"error": {"message", "type", "code"}}`, before the connection is reset.

    Why: clients of OpenAI's API know such an event, and tell their users what it says. Others may
    not, and some take any end for a good one."""


def check_routes(routes: Sequence[Route], *, are_alike: bool) -> None:
    """Raise InputError, naming the field, for routes that cannot be, on servers that `are_alike` or
    not."""
    for index, route in enumerate(routes):
        told = f"routes[{index}]"
        check_limits(route, "topology", f"{told}.")
        if not _PATH_PREFIX.fullmatch(route.path):
            expected = f"expected a path that starts with /, got {route.path!r}"
            raise InputError("topology", f"{told}.path", expected)
        for method in route.methods:
            if not _METHOD.fullmatch(method):
                expected = f"expected methods such as GET, got {method!r}"
                raise InputError("topology", f"{told}.methods", expected)
        if route.unqueued and (route.type is not None or not are_alike):
            expected = "expected no type and equal servers: it takes no server"
            raise InputError("topology", f"{told}.unqueued", expected)
