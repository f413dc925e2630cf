"""Fixtures that break nodes: each fault befalls a federation of four of its own, under load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from support.faults.federation import Federation
from support.faults.load import Load, send
from support.faults.reckoning import HEALTHY_S, under
from support.ports import free_ports


@pytest.fixture(scope="session")
def rings(tmp_path_factory) -> Iterator[Callable[[int], list[Any]]]:
    """`rings(count)`: so many federations of four nodes that run and are well. They are used
    again: starting them takes longer than most faults. One that did not recover is replaced."""
    running: list[Any] = []
    spoiled: list[Any] = []

    def rings_that_run(count: int) -> list[Any]:
        for ring in [ring for ring in running if not asyncio.run(_is_well(ring))]:
            running.remove(ring)
            spoiled.append(ring)
        new = []
        for _ in range(count - len(running)):
            directory = tmp_path_factory.mktemp("ring")
            new.append(Federation(directory=directory, ports=free_ports(4)))
        running.extend(new)
        asyncio.run(_start_all(new))
        return running[:count]

    try:
        yield rings_that_run
    finally:
        statuses = [ring.close() for ring in running]
        for ring in spoiled:
            ring.close()
    assert not any(any(status.values()) for status in statuses), statuses


async def _start_all(rings: list[Any]) -> None:
    await asyncio.gather(*(ring.start() for ring in rings))


async def _is_well(ring: Any) -> bool:
    try:
        await ring.healthy(HEALTHY_S)
    except TimeoutError:
        return False
    return True


@pytest.fixture
def endure(rings) -> Callable[..., dict[str, Any]]:
    """`endure({name: fault, ...})`: each fault on a ring of its own, all at once, in the middle of
    a load. A fault is an async function of the federation, and returns when it is healed: the load
    goes on as long. The reckonings by name; fails if there is anything wrong with one of them."""

    def endure_them(faults: dict[str, Any]) -> dict[str, Any]:
        found = asyncio.run(_endure(rings(len(faults)), faults))
        wrongs = [f"{one.name}: {wrong}" for one in found.values() for wrong in one.wrongs]
        assert not wrongs, f"{len(wrongs)} wrongs, such as\n" + "\n".join(wrongs[:10])
        return found

    return endure_them


async def _endure(rings: list[Any], faults: dict[str, Any]) -> dict[str, Any]:
    stamp = time.monotonic_ns()

    async def one(ring: Any, name: str, fault: Any) -> Any:
        work = f"{name.replace(' ', '_')}-{stamp}"
        load = partial(send, work, ring.urls, Load(), times_longer=lambda: ring.times_longer)
        return await under(ring, name, load, partial(fault, ring))

    found = await asyncio.gather(
        *(one(ring, name, fault) for ring, (name, fault) in zip(rings, faults.items(), strict=True))
    )
    return {one.name: one for one in found}
