"""What a client's machine did on real nodes, event by event, under the simulator's clock: the same
commands. What is simulated is what runs, and its randomness is its own."""

import json
from random import Random

import yaml

from spillover.core.membership.client_session import ClientSession
from spillover.core.membership.session_events import Announced, Connect, Connected, Leave, Use
from spillover.live.http1.client import HttpClient
from spillover.live.membership.session_shell import SessionShell
from spillover.sim.engine.world import World

SEED = 3


class Recorded(ClientSession):
    """Notes what it is told, when, and what it makes of it."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.log = []

    def handle(self, event, now_s):
        commands = super().handle(event, now_s)
        self.log.append((event, now_s, list(commands)))
        return commands


def machine(urls):
    return Recorded("me", urls, Random(SEED), change_wait_s=0.05, in_order=True)


async def go_by(node, names):
    """Have the federation be these clusters."""
    told = (await node.get("/admin/config"))[1]
    fields = yaml.safe_load(told["topology"])
    fields["clusters"] = [one for one in fields["clusters"] if one["id"] in names]
    fields["links"] = [one for one in fields["links"] if set(one["between"]) <= set(names)]
    body = json.dumps({"if_version": told["version"], "topology": fields}).encode()
    assert (await node.send("PUT", "/admin/config", body))[0] == 200


async def test_a_live_log_in_the_simulators_shell(nodes):
    urls, live = [], []
    async with nodes.Federation(nodes.topology_of("a", "b", "c")) as federation:
        urls[:] = [node.url for node in federation.nodes.values()]
        live.append(machine(urls))
        clients = {url: HttpClient(url) for url in urls}
        shell = SessionShell("me", live[0], clients.__getitem__, lambda: None)
        shell.start()
        await nodes.until(lambda: shell.in_use is not None and shell.in_use.id == "a")
        await go_by(federation["b"], "bc")  # a drains, and its client goes
        await nodes.until(lambda: shell.in_use is not None and shell.in_use.id in "bc")
        there = federation[shell.in_use.id]
        await there.send("POST", "/admin/drain")
        left = ({"b", "c"} - {shell.in_use.id}).pop()
        await nodes.until(lambda: shell.in_use is not None and shell.in_use.id == left)
        await shell.close()
        for client in clients.values():
            await client.close()
    log = live[0].log
    kinds = {type(command) for _, _, commands in log for command in commands}
    assert kinds == {Connect, Use, Leave}
    assert {Connected, Announced} <= {type(event) for event, _, _ in log}
    world, again = World(), machine(urls)
    for event, now_s, _ in log:
        world.at(now_s, lambda event=event: again.handle(event, world.now_s))
    world.run(lambda: False)
    assert again.log == log
