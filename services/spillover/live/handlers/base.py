"""The shape of a handler as the node drives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from spillover.core.overflow.events import NotStarted, ServiceEnded, Start

OnEnd: TypeAlias = Callable[[ServiceEnded | NotStarted, float | None], None]
"""Is called once for every start; the instant is given where the end was meant for one."""

OnHealth: TypeAlias = Callable[[bool], None]
"""Is called with False when nothing can run any request for now, with True when something can
again. All is well until then."""


class Workers(Protocol):
    """Runs requests on the servers of a cluster. The machine never starts more than there are
    servers, or tokens where these are unlike."""

    def problem_with(self, payload: Any) -> str | None:
        """Returns why this payload can never be run, in one line; None if it may be tried."""

    def start(self, command: Start) -> None:
        """Run the request, then report its end."""

    def stop(self, ref: int) -> None:
        """The result is no longer wanted. The end is reported all the same, at once where the
        work can be stopped, else when it returns."""

    async def close(self) -> None:
        """End what can be ended and free what was held."""
