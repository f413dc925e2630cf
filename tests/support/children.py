"""Processes of ours that are none here: what they would do goes on in the loop of the test, under
the id of this process, and is talked to over the same pipe. For what is asked and told, where that
it is another process does not matter: that is in tests/tools/processes.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack, asynccontextmanager

from spillover.tools.processes.child import Child

ENDS_S = 0.2
"""For what ends by itself once nobody talks to it any more."""


@asynccontextmanager
async def in_this_loop(child, work):
    """A `Child` that was not started; `work(connection)` does what it is for, as a coroutine."""
    child._pid = os.getpid()
    working = asyncio.create_task(work(child._there))
    try:
        yield child
    finally:
        child.connection.close()  # which ends those who wait for a word
        await asyncio.wait([working], timeout=ENDS_S)
        working.cancel()
        (ended,) = await asyncio.gather(working, return_exceptions=True)
        child._there.close()
        if ended is not None and not isinstance(ended, EOFError | OSError | asyncio.CancelledError):
            raise ended


@asynccontextmanager
async def doing(work, *told):
    """A process that does `work(*told, connection, stack)`, whose stack ends with it."""
    with ExitStack() as stack:
        child = Child("the process", work)
        async with in_this_loop(child, lambda there: work(*told, there, stack)) as child:
            yield child
