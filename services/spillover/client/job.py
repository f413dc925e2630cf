"""A job is a request that goes on while nobody waits for it; its name finds it at its node."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from spillover.client import wire
from spillover.client.calls import ClientCalls
from spillover.client.wire import Answer, JobState
from spillover.live.engine.loop_thread import LoopThread
from spillover.live.http1.outgoing import Response
from spillover.model.arguments import checked_seconds

WAIT_S_MAX = 60.0
"""The longest time, in seconds, that a look-up waits at a node; a caller that waits longer asks
again."""
PAUSE_S = 0.5
"""The pause, in seconds, before the next look-up, if a node did not let it wait because too many
wait for the same job."""


class AsyncJob:
    """A submitted request. Its `id` and its `node` suffice to find it again, from another process
    as well: `spillover.job(id, node=node)`."""

    def __init__(
        self, calls: ClientCalls, id: str, node: str, on_end: Callable[[str], object] | None = None
    ) -> None:
        self._calls = calls
        self._on_end = on_end
        self.id = id
        self.node = node

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} at {self.node}>"

    async def result(self, timeout_s: float | None = None) -> Answer:
        """Wait for its end, and return the answer. It can be asked for again, as long as the node
        remembers it (`result_ttl_s`).

        Raises TimeoutError if it has not ended after `timeout_s`: it goes on. Raises Failed,
        Rejected, Expired or Cancelled if it ended so, and OutcomeUnknown if its node does not know
        it, or cannot be asked.
        """
        limit_s = math.inf if timeout_s is None else checked_seconds("timeout_s", timeout_s)
        until_s = time.monotonic() + limit_s
        while True:
            asked_s = time.monotonic()
            wait_s = max(min(until_s - asked_s, WAIT_S_MAX), 0.0)
            said = await self._wait(wait_s)
            if isinstance(said, Answer):
                return said
            now_s = time.monotonic()
            if now_s >= until_s:
                message = f"job {self.id!r} is still {said} after {timeout_s:g} s; it goes on"
                raise TimeoutError(message)
            if now_s < asked_s + min(wait_s, PAUSE_S):
                await asyncio.sleep(min(PAUSE_S, until_s - now_s))

    async def state(self) -> JobState:
        """Returns where the job is, or how it ended; "unknown" if its node does not know it. Raises
        OutcomeUnknown if its node gives no answer."""
        return await self._look("GET")

    async def cancel(self) -> JobState:
        """Cancel the job, wherever it is. Returns how it ended, which may be "done" if that was
        first, or where it is if another cluster has not yet confirmed the end."""
        return await self._look("DELETE")

    async def _wait(self, wait_s: float) -> Answer | JobState:
        """Returns the answer, or the state if the job has not ended by then. Raises any other
        end."""
        path = f"{wire.job_path(self.id)}?wait_ms={wait_s * 1e3:.0f}"

        def read(node: str, response: Response) -> Answer | JobState:
            state = wire.read_state(node, self.id, response)
            self._note(state)
            return wire.read_end(node, self.id, state, response)

        return await self._calls.look(self.node, "GET", path, read, wait_s=wait_s)

    async def _look(self, method: str) -> JobState:
        def read(node: str, response: Response) -> JobState:
            return wire.read_state(node, self.id, response)

        state = await self._calls.look(self.node, method, wire.job_path(self.id), read)
        self._note(state)
        return state

    def _note(self, state: JobState) -> None:
        if state in wire.ENDS and self._on_end is not None:
            self._on_end(self.id)


class Job:
    """An AsyncJob for code that never awaits."""

    def __init__(self, job: AsyncJob, thread: LoopThread) -> None:
        self._job = job
        self._thread = thread
        self.id = job.id
        self.node = job.node

    def __repr__(self) -> str:
        return f"<Job {self.id!r} at {self.node}>"

    def result(self, timeout_s: float | None = None) -> Answer:
        """Do the same as `AsyncJob.result`."""
        return self._thread.run(self._job.result(timeout_s))

    def state(self) -> JobState:
        """Do the same as `AsyncJob.state`."""
        return self._thread.run(self._job.state())

    def cancel(self) -> JobState:
        """Do the same as `AsyncJob.cancel`."""
        return self._thread.run(self._job.cancel())
