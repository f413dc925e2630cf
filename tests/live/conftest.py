"""What tests of the live parts share. Servers, and what they play, stay with the tests."""

from __future__ import annotations

import asyncio
import inspect
import os
import zlib

import pytest
import uvloop

RUN_LIMIT_S = 60.0
FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
LOOPS = [*FACTORIES] if "SPILLOVER_SOAK_S" in os.environ else ["either"]


@pytest.fixture(params=LOOPS)
def run(request):
    """Runs a coroutine to its end under a time limit, in `make soak` on either event loop, else on
    one of them: always the same for a test, and another for about half of its file."""
    names = [*FACTORIES]
    either = names[zlib.crc32(request.node.nodeid.encode()) % len(names)]

    async def limited(main):
        async with asyncio.timeout(RUN_LIMIT_S):
            return await main

    def run_to_end(main):
        factory = FACTORIES.get(request.param, FACTORIES[either])
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(limited(main))

    return run_to_end


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(name, obj):
    """Tests that are coroutines run as `run` says."""
    if name.startswith("test_") and inspect.iscoroutinefunction(obj):
        pytest.mark.usefixtures("run")(obj)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run those to their end."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    pyfuncitem.funcargs["run"](pyfuncitem.function(**given))
    return True
