"""The workers of a Dask cluster and the requests there, as a node counts them, and how functions
get there.

Which request goes where, and when, is in `session`.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from spillover.live.handlers import results
from spillover.live.handlers.dask import call as dask_call
from spillover.live.process.logs import Message, OncePerPeriod

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


@dataclass(slots=True, eq=False)
class PoolWorker:
    """A worker that can run the function, in as many slots (threads) as it has."""

    address: str
    slots: int
    token: str
    """A token of this very process: another one may come to the same address."""
    running: int = 0


class Listener(Protocol):
    """A listener on the node's loop learns the ends of requests."""

    def slots_changed(self, *, is_up: bool) -> None: ...
    def not_begun(self, ref: int, problem: str) -> None: ...
    def ended(self, ref: int, kind: str, value: Any, details: str) -> None: ...


@dataclass(slots=True, eq=False)
class DaskRequest:
    """One request, from its start to its end. `facts` are what the function may know of it."""

    ref: int
    payload: bytes
    facts: dict[str, Any]
    deadline_s: float
    keyed: bool
    stopped: bool = False
    tried: bool = False
    """Once at a worker that was lost: it may have run, and is not tried a third time."""
    key: str = ""
    worker: PoolWorker | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class UsableWorkers:
    """All workers that can be used."""

    def __init__(self) -> None:
        self._workers: dict[str, PoolWorker] = {}

    @property
    def addresses(self) -> set[str]:
        return set(self._workers)

    @property
    def slots(self) -> int:
        return sum(worker.slots for worker in self._workers.values())

    def add(self, worker: PoolWorker) -> None:
        self._workers[worker.address] = worker

    def resize(self, address: str, slots: int) -> None:
        """The worker at this address has so many slots, if there is one."""
        if worker := self._workers.get(address):
            worker.slots = slots

    def remove(self, address: str) -> PoolWorker | None:
        return self._workers.pop(address, None)

    def free(self) -> PoolWorker | None:
        """Returns the one with the most free slots; None if there are none."""
        workers = self._workers.values()
        found = max(workers, key=lambda each: each.slots - each.running, default=None)
        return found if found is not None and found.running < found.slots else None

    def tell(self, address: str, servers: int) -> None:
        """Say how many slots the cluster at this address has for so many servers."""
        slots = self.slots
        counts = {"upstream": address, "slots": slots, "servers": servers}
        if slots == 0:
            _log.warning(Message("no worker slots that can be used", **counts))
        elif slots < servers:
            advice = f"as many as are missing wait for one; set servers: {slots}"
            _log.warning(Message("fewer worker slots than servers", **counts, advice=advice))
        else:
            _log.info(Message("worker slots", **counts))


class Shipped:
    """A function of `call` in the form that travels: whole, since no worker has the module.
    Its bytes are made once."""

    def __init__(self, function: Callable[..., Any]) -> None:
        import cloudpickle  # noqa: PLC0415 - comes with Dask

        for module in (dask_call, results):
            cloudpickle.register_pickle_by_value(module)
        try:
            self._bytes = cloudpickle.dumps(function)
        finally:
            for module in (dask_call, results):
                cloudpickle.unregister_pickle_by_value(module)
        self._function = function
        self.__name__ = function.__name__

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        import cloudpickle  # noqa: PLC0415 - comes with Dask

        return cloudpickle.loads, (self._bytes,)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._function(*args, **options)


async def greet(client: Any, address: str, names: tuple[str, str]) -> tuple[str, str]:
    """Meet a worker: (its token, why it cannot be used or ""). Raises what Dask does."""
    versions = await client.run(platform.python_version, workers=[address])
    there, here = versions[address], platform.python_version()
    if there.rpartition(".")[0] != here.rpartition(".")[0]:
        return "", f"has Python {there}, not {here}: functions cannot travel"
    answers = await client.run(Shipped(dask_call.greet), *names, workers=[address])
    token, problem = answers[address]
    return token, problem
