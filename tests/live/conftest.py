"""What tests of the live parts share. Servers, and what they play, stay with the tests."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

RUN_LIMIT_S = 20.0


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine to its end on either event loop, under a time limit."""

    def run_to_end(main):
        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(main, RUN_LIMIT_S))

    return run_to_end
