"""What strangers, neighbors and services can bring about as often as they like is told once a
second: nobody fills the disk of a node by what it logs of him.
"""

import importlib
import logging

import pytest

from spillover.live.process.logs import Message

TOLD_OFTEN = [
    "spillover.apps.http.asgi",
    "spillover.apps.http.console.broadcast",
    "spillover.apps.node.answers",
    "spillover.apps.node.configuration",
    "spillover.apps.node.door_connection",
    "spillover.apps.node.federation",
    "spillover.apps.node.passed_answers",
    "spillover.apps.node.proxy_door",
    "spillover.apps.queue.app",
    "spillover.apps.queue.calls",
    "spillover.live.handlers.dask.connection",
    "spillover.live.handlers.dask.pool",
    "spillover.live.handlers.dask.session",
    "spillover.live.handlers.ends",
    "spillover.live.handlers.http.upstreams",
    "spillover.live.handlers.python.handler",
    "spillover.live.membership.shell",
    "spillover.live.membership.store",
    "spillover.live.overflow.condition_log",
    "spillover.live.overflow.identity.callers",
    "spillover.live.overflow.shell",
    "spillover.live.overflow.tracing.watching",
    "spillover.live.queue.bodies",
    "spillover.live.queue.shell",
    "spillover.live.queue.work",
    "spillover.live.tls.rotation.handshakes",
]
"""The logs, by name: those of modules, or of a part of what a module tells."""


@pytest.mark.parametrize("name", TOLD_OFTEN)
def test_the_same_many_times_over_is_told_once(name, caplog):
    """And what is of another kind all the same."""
    importlib.import_module(name.removesuffix(".callers").removesuffix(".handshakes"))
    log = logging.getLogger(name)
    with caplog.at_level(logging.WARNING):
        for number in range(300):
            log.warning(Message("it rains in", number=number))
        log.warning(Message("and it pours in"))
    words = [one.msg.words for one in caplog.records]
    assert 1 <= words.count("it rains in") < 30, "even where this takes seconds"
    assert words.count("and it pours in") == 1
