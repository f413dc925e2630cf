"""Fixtures of the end-to-end tests: commands as users start them, and federations that are broken.

Everything here sees Spillover as its users do: commands, standard streams, HTTP on loopback. The
only waiting is for conditions, under a time limit. No other rule of the product lives here.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support import commands, console_page, ports, waiting
from support.faults import federation, reckoning
from support.faults import load as loads

HERE = f"{Path(__file__).parent}{os.sep}"
LOOK_S = 0.04
"""Between two looks, which mostly ask a node: that costs it as much as several requests."""

start = commands.start
module_start = commands.module_start
up = commands.up
generate = commands.generate
spillover = commands.spillover
ask = commands.ask_fixture
watch = commands.watch_fixture
is_balanced = commands.is_balanced_fixture
chromium = console_page.chromium
opened = console_page.opened
expect = console_page.expect
held = commands.held_fixture
free_ports = commands.free_ports_fixture


def pytest_collection_modifyitems(items):
    """All of this directory waits in real time."""
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def until():
    return partial(waiting.until, every_s=LOOK_S)


# --- what breaks nodes ------------------------------------------------------------------------


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
            new.append(federation.Federation(directory=directory, ports=ports.free_ports(4)))
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
        await ring.healthy(reckoning.HEALTHY_S)
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
        return await reckoning.under(
            ring, name, partial(loads.send, work, ring.urls, loads.Load()), partial(fault, ring)
        )

    found = await asyncio.gather(
        *(one(ring, name, fault) for ring, (name, fault) in zip(rings, faults.items(), strict=True))
    )
    return {one.name: one for one in found}
