"""A service whose console shows what a test tells it: states that no node need be in.

The page, its routes and what it is sent are the product's; only what they tell of is made up.
"""

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager

import msgspec
from fastapi import FastAPI

from spillover.apps.http.console.console import Console
from spillover.apps.http.console.operators import Operators
from spillover.apps.http.server import HttpServer, url_of
from spillover.apps.lease.views import LeaseState
from spillover.apps.node.console_view import PERIOD_S, cluster_view
from spillover.apps.node.views import NodeState
from spillover.live.process.listening import bind_socket

STARTS_S = 40.0
"""As long as the page may take for anything: threads wait for each other on a busy machine."""


def state_of(cluster, neighbors=(), **fields):
    """A cluster at rest, but for what is given; `neighbors` has the fields of each, by id."""
    told = {"url": None, "neighborhood_accept_probability": 1.0, "queue_length": 0}
    ledger = {"epoch": 1, "home": {"accepted": 0}, "foreign": {}}
    rows = [
        {"id": one, "accept_probability": 1.0, "age_ms": 5.0, "alive": True, **told, **more}
        for one, more in dict(neighbors).items()
    ]
    at_rest = {
        **told, "servers": 5, "busy": 2, "accept_probability": 1.0, "policy": "paper",
        "version": "0", "draining": False, "drained": False, "forwards": 0,
    }  # fmt: skip
    own = {"cluster": cluster, "neighbors": rows, "ledger": ledger}
    return NodeState.model_validate({**at_rest, **own, **fields})


def member_of(node, **fields):
    """A lease member of three partitions at rest; `fields` are those of `/state`."""
    at_rest = {
        "group": "g", "node": node, "state": "member", "rule": "guarded", "balance": "count",
        "version": "0", "draining": False, "partitions": 3, "held": {}, "members": [],
        "allocation": [], "grabs": [], "redis": {"up": True, "problem": None}, "as_of_s": 0.1,
        "redis_now_ms": 0.0, "renewal": {"kind": "process", "lag_ms_max": 0.0}, "loop_lag_ms": 0.0,
    }  # fmt: skip
    return LeaseState.model_validate({**at_rest, **fields})


def allocated(partition, node, **fields):
    """A row of the allocation: served, but for what is given."""
    row = {"since_ms": 0.0, "lease_ms_left": 9_000.0, "stopping": False, "load": None}
    return {"partition": partition, "node": node, "epoch": 7, **row, **fields}


def console_of(own, links, tell, *, decisions=(), actions=None):
    """The url of a service that calls itself `own`. `tell` is asked for the states of all clusters
    each time that somebody looks; `decisions` are as they are sent, newest first."""

    def look():
        states = tell()
        return {
            "at_ms": time.monotonic() * 1e3,
            "clusters": [cluster_view(one.cluster, one) for one in states],
            "links": [[*link, 5.0] for link in links],
            "decisions": list(decisions),
        }

    about = {"name": own, "topology": "told", "version": "0", "testbed": False}
    return _served("node", about, look, actions)


@contextmanager
def _served(kind, about, look, actions=None):
    async def told():
        return msgspec.json.encode(look())

    console = Console(
        kind,
        about,
        told,
        period_s=PERIOD_S,
        actions={} if actions is None else actions,
        operators=Operators(testbed=False, own_names=frozenset()),
    )
    app = FastAPI()
    console.mount(app)
    begun = Future()

    async def serve(listening):
        server = HttpServer(app)
        begun.set_result((asyncio.get_running_loop(), server))
        await server.serve([listening])

    def run(listening):
        try:
            asyncio.run(serve(listening))
        except Exception as error:
            if begun.done():
                raise
            begun.set_exception(error)  # the test fails by it, and not for want of time

    with bind_socket("127.0.0.1", 0) as listening:
        serving = threading.Thread(target=run, args=(listening,), daemon=True)
        serving.start()
        loop, server = begun.result(STARTS_S)
        try:
            yield url_of(listening)
        finally:
            for end in (console.close, server.stop):
                loop.call_soon_threadsafe(end)
            serving.join(STARTS_S)
