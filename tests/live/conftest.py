"""What tests of the live parts share. Servers, and what they play, stay with the tests."""

import asyncio
import inspect
import os
import zlib

import pytest
import uvloop

RUN_LIMIT_S = 60.0
FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
LOOPS = [*FACTORIES] if "SPILLOVER_SOAK_S" in os.environ else ["either"]


def either_of(nodeid):
    """Return the factory of one of the loops: always the same for a test, and another for about
    half of its file."""
    names = [*FACTORIES]
    return FACTORIES[names[zlib.crc32(nodeid.encode()) % len(names)]]


async def limited(main):
    """Await it in the task that there is: tests look at who else has one."""
    async with asyncio.timeout(RUN_LIMIT_S):
        return await main


def run_on(factory, main):
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(limited(main))


@pytest.fixture(params=LOOPS)
def run(request):
    """Runs a coroutine to its end under a time limit, in `make soak` on either event loop, else on
    one of them."""
    factory = FACTORIES.get(request.param, either_of(request.node.nodeid))
    return lambda main: run_on(factory, main)


OWN_LOOP = {"loop", "nodes"}
"""A test that asks for one of these runs on the loop that this says: no need of another."""


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(name, obj):
    """Have tests that are coroutine functions run as `run` says."""
    if not name.startswith("test_") or not inspect.iscoroutinefunction(obj):
        return
    if OWN_LOOP.isdisjoint(inspect.signature(obj).parameters):
        pytest.mark.usefixtures("run")(obj)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine function under a time limit: on the loop that it asks for, if
    its parameter `loop` has a factory; with whole nodes on the loop that these use; else by `run`.
    None: it is an ordinary function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    main = pyfuncitem.obj(**given)
    if run := pyfuncitem.funcargs.get("run"):
        run(main)
    else:
        run_on(given.get("loop", uvloop.new_event_loop), main)
    return True
