"""The handler `dask:ADDRESS:MODULE:FUNCTION`: calls F(payload) or F(payload, ctx) on the workers of
a Dask cluster that is there already.

A server here is a slot there. What surely was not begun is decided again; what may have run, and
whose worker or scheduler was lost, is tried once more only if it has a key. The connection, and who
waits for which slot, is in `session`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import msgspec

from spillover.core.overflow.events import NotStarted, ServiceEnded, Start
from spillover.live.handlers.base import OnEnd, OnHealth
from spillover.live.handlers.calls import (
    PROBLEM_LENGTH_MAX,
    CallResult,
    pause_s,
    rejected_status,
    said,
)
from spillover.live.handlers.dask import call as dask_call
from spillover.live.handlers.dask.pool import DaskRequest
from spillover.live.handlers.dask.session import DaskSession
from spillover.live.handlers.ends import event_of
from spillover.model.dask_target import DaskTarget
from spillover.model.errors import InputError
from spillover.model.extras import how_to_get, is_installed
from spillover.model.ids import told_inside
from spillover.model.request import Outcome
from spillover.model.topology import Cluster


class DaskWorkers:
    """Runs as many requests on the Dask cluster as there are servers. It is made inside a running
    loop, which it holds up until the cluster has answered. Raises InputError, naming `source`,
    where nothing answers, where no worker can run the function, and where the extra is not
    installed.

    Raises InputError, naming `source`, where nothing answers, where no worker can run the function,
    and where the extra is not installed.
    """

    def __init__(
        self, target: DaskTarget, cluster: Cluster, source: str, on_end: OnEnd, on_health: OnHealth
    ) -> None:
        if not is_installed("distributed"):
            raise InputError(source, "handler", f"Dask needs {how_to_get('dask')}")
        self._cluster = cluster
        self._on_end = on_end
        self._on_health = on_health
        self._started: dict[int, Start] = {}
        self._stopped: set[int] = set()
        self._problem = ""
        # Dask says on stderr what is told here in its own words.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self._session = DaskSession(target, cluster.server_count, asyncio.get_running_loop(), self)
        try:
            self._session.open()
        except LookupError as error:
            raise InputError(source, "handler", f"{error.args[0]}") from error
        except ConnectionError as error:
            expected = (
                f"expected a Dask scheduler at {target.address}, got: {error}; start one with "
                f"`dask scheduler --port {target.port}`, workers with `dask worker "
                f"{target.address}`, or mend the address"
            )
            raise InputError(source, "handler", expected) from error

    def problem_with(self, payload: msgspec.Raw) -> str | None:  # noqa: ARG002 - any JSON will do
        return None

    def start(self, command: Start) -> None:
        request = command.request
        self._started[command.ref] = command
        facts = {"id": told_inside(request.id), "type": request.type, "cluster": self._cluster.id}
        payload = bytes(memoryview(request.work))
        self._session.submit(
            DaskRequest(command.ref, payload, facts, command.deadline_s, request.keyed)
        )

    def stop(self, ref: int) -> None:
        """Stop a call. One that waits for a slot ends at once; one that runs ends when it
        returns."""
        if ref in self._started:
            self._stopped.add(ref)
            self._session.stop(ref)

    async def close(self) -> None:
        self._started.clear()
        await self._session.close()

    # --- what the session tells ---------------------------------------------------------------

    def slots_changed(self, *, is_up: bool) -> None:
        """There are slots again, or none any more."""
        self._on_health(is_up)

    def not_begun(self, ref: int, problem: str) -> None:
        """The node has been told by now that nothing can be started."""
        command = self._started.pop(ref, None)
        if command is None:
            return
        if ref in self._stopped:
            self._end(command, Outcome.CANCELLED)
        else:
            self._on_end(NotStarted(ref, problem[:PROBLEM_LENGTH_MAX]), None)

    def ended(self, ref: int, kind: str, value: Any, details: str) -> None:
        """End a request with what `dask_call.run` tells; NOT_BEGUN only for what was stopped."""
        command = self._started.pop(ref, None)
        if command is None:
            return
        if ref in self._stopped:
            self._end(command, Outcome.CANCELLED)
        else:
            self._on_end(event_of(command, _end_of_call(kind, value, details)), None)

    def _end(self, command: Start, outcome: Outcome, **found: Any) -> None:
        self._stopped.discard(command.ref)
        service_s = max(0.0, time.monotonic() - command.at_s)
        self._on_end(ServiceEnded(command.ref, outcome, service_s, **found), None)


def _end_of_call(kind: str, value: Any, details: str) -> CallResult:
    """Returns the result of `dask_call.run` in the words of `ends`."""
    if kind == dask_call.DONE:
        return CallResult(value)
    if kind == dask_call.NOT_RUN:
        problem, asked_s = value
        return CallResult(problem=problem, not_run=True, retry_after_s=pause_s(asked_s))
    if kind == dask_call.REJECTED:
        problem, status, body = value
        ended = CallResult(problem=problem, rejected=True)
        ended.status = rejected_status(status)
        ended.body = None if body is None else said(body)
        return ended
    return CallResult(problem=value, details=details)
