"""Nodes with doors in processes of their own that are made to be killed. They are forked off one
that has imported all there is, so that each is there in a moment.
"""

import asyncio
import multiprocessing
from contextlib import contextmanager
from itertools import pairwise

import uvloop

from spillover.apps.http.server import HttpServer
from spillover.apps.node.app import create_app
from spillover.apps.node.proxy_door import ProxyDoor
from spillover.core.overflow.events import ServersDown
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.listening import bind_socket
from spillover.model.topology import Cluster, Link, Topology
from support.loop import until
from support.ports import free_ports

_forks = multiprocessing.get_context("forkserver")
# Not this module: that process does not know yet where tests are.
_forks.set_forkserver_preload(["__main__", "pytest", "spillover.apps.node.server"])

READY_S = 60.0


def _serve(topology, id_, door_port, ready):
    """What such a process does until it is killed. Only the last cluster has servers."""

    async def main():
        cluster = topology.cluster(id_)
        shell = NodeShell(topology, id_)
        server, door = HttpServer(create_app(shell)), ProxyDoor(shell)
        port = int(cluster.url.rpartition(":")[2])
        async with asyncio.TaskGroup() as group:
            group.create_task(shell.run())
            group.create_task(server.serve(sockets=[bind_socket("127.0.0.1", port)]))
            group.create_task(door.serve([bind_socket("127.0.0.1", door_port)]))
            if id_ != topology.cluster_ids[-1]:
                shell.feed(ServersDown())
                await until(lambda: all(shell.machine.neighbors.accepting))
            ready.send(True)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@contextmanager
def dying_nodes(upstream, *ids):
    """A chain of nodes, the last of which runs requests: the url of the first one's door, and the
    processes by cluster."""
    *ports, door = free_ports(len(ids) + 1)
    handler = {"servers": 1, "handler": f"proxy:{upstream}"}
    topology = Topology(
        name="dying",
        clusters=tuple(
            Cluster(id=id_, url=f"http://127.0.0.1:{port}", **handler)
            for id_, port in zip(ids, ports, strict=True)
        ),
        links=tuple(Link(between=pair) for pair in pairwise(ids)),
        gossip_period_ms=20.0,
        policy="two-choice",
    )
    started, waiting = {}, []
    try:
        for id_ in ids:
            heard, told = _forks.Pipe(duplex=False)
            door_port = door if id_ == ids[0] else 0
            process = _forks.Process(target=_serve, args=(topology, id_, door_port, told))
            process.start()
            told.close()
            started[id_] = process
            waiting.append(heard)
        for heard in waiting:
            assert heard.poll(READY_S), "it is not ready"
            assert heard.recv()
            heard.close()
        yield f"http://127.0.0.1:{door}/", started
    finally:
        for process in started.values():
            process.kill()
            process.join()
