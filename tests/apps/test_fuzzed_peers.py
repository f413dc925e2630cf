"""Nodes, producers and sessions whose peers say whatever can be written in the place of a message,
at full speed: each lives, answers, and has its ledger balanced; no client is told of a bug.

Messages are made from their declarations (`support.fuzzed`). In `make soak` this goes on for
SPILLOVER_SOAK_S, from one seed to the next; SPILLOVER_SEED is the first one.
"""

import asyncio
import json
import logging
import os
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from random import Random

import pytest

from spillover.apps.http.server import HttpServer, url_of
from spillover.apps.queue.app import QueueApp
from spillover.core.membership.client_session import ClientSession
from spillover.core.queue.consumer import ConsumerSettings
from spillover.core.queue.settings import ProducerSettings
from spillover.live.http1.client import HttpClient
from spillover.live.http1.lines import UNPACED
from spillover.live.http1.trust import Trust
from spillover.live.membership import session_wire
from spillover.live.membership.session_shell import SessionShell
from spillover.live.overflow import peer_link, wire
from spillover.live.overflow.identity import HELLO, hello_of
from spillover.live.overflow.protocol import CONFIGURATION
from spillover.live.process.listening import bind_socket
from spillover.live.queue import consumer_shell
from spillover.live.queue.consumer_shell import ConsumerShell
from spillover.live.queue.shell import QueueShell
from spillover.model.errors import Rejected
from spillover.model.passed import PassedRequest
from spillover.model.request import Request
from support import scripted_answers, scripted_server
from support.fuzzed import Fuzzed
from support.loop import turn, until
from support.rogue_node import RogueNode
from support.rogue_producer import ID, RogueProducer
from support.talking import talking

FIRST = int(os.environ.get("SPILLOVER_SEED", "1"))
SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "0"))
COUNT = int(os.environ.get("SPILLOVER_MESSAGES", "5000" if SOAK_S else "1500"))
"""Messages of one seed."""
LIMIT_S = 600.0 + COUNT / 50
LOSES = "the producer ends: it loses objects that were in memory"
"""Said by a producer without a store."""
WORK = PassedRequest("GET", b"/x", ((b"Host", b"x"),), b"").encode()
CLIENTS = 20
BEFORE_LOOK = 500
"""Calls of a neighbor at a time; then the node is looked at."""


def seeds():
    """One after the other, for as long as is asked for."""
    end_s, seed = time.monotonic() + SOAK_S, FIRST
    yield seed
    while time.monotonic() < end_s:
        seed += 1
        yield seed


def strict(text):
    """JSON as it is defined, which knows no NaN."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def no_bug(caplog):
    """Nothing is logged as an error: what is caught there would end a node elsewhere."""
    caplog.set_level(logging.ERROR)
    yield
    told = [one for one in caplog.text.splitlines() if LOSES not in one]
    assert told == []


# --- nodes ----------------------------------------------------------------------------------------


class Bed:
    """A node `a` among a true neighbor and two rogues, and clients that load it."""

    def __init__(self, nodes, seed):
        policy, self.passes = ("adaptive", "two-choice", "paper")[seed % 3], seed % 2 == 0
        self._nodes, self._seed = nodes, seed
        self._policy = policy
        self.answers = Counter()

    async def run(self):
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            service = await enter(scripted_server.scripted(scripted_server.answer(200, {"a": 1})))
            given = {"servers": 1, "queue_limit": 5}
            if self.passes:
                given["handler"] = f"proxy:{service.url}"
            topology = self._nodes.topology_of(
                *"abxy", links=["ab", "ax", "ay"], clusters=dict.fromkeys("ab", given),
                policy=self._policy, default_deadline_ms=2000.0, max_hops=2,
            )  # fmt: skip
            federation = self._nodes.Federation(topology, absent=("x", "y"))
            self.a = (await enter(federation))["a"]
            rogues = []
            for name in "xy":
                url = federation.topology.cluster(name).url
                rogue = await enter(RogueNode(name, url, "a", self.a.url, self._seed))
                rogue.passes = self.passes
                _, state = await self.a.get("/state")
                rogue.state = state | {"cluster": name}
                hello = [(HELLO, hello_of(wire.Caller("b", "a", "test")))]
                _, _, rogue.configuration = await self.a.send("GET", CONFIGURATION, headers=hello)
                rogues.append(rogue)
            await self._be_told(rogues)
            await self._look_at_the_end()
        return rogues

    async def _be_told(self, rogues):
        over = asyncio.Event()
        clients = [asyncio.create_task(self._ask(over)) for _ in range(CLIENTS)]
        while sum(sum(rogue.said.values()) for rogue in rogues) < COUNT:
            await asyncio.gather(*(rogue.call(BEFORE_LOOK) for rogue in rogues))
            await self._look()
            self.a.machine.check()
        over.set()
        await asyncio.gather(*clients)

    async def _ask(self, over):
        """One client, whatever it is told: any answer is one, but that of a bug."""
        while not over.is_set():
            if self.passes:
                told = scripted_answers.Told()
                request = Request("", False, WORK, size_bytes=len(WORK))
                self.a.shell.requests.home.take_passed(request, self.a.shell.now_s + 2.0, told)
                await self._nodes.until(lambda told=told: told.how, limit_s=60.0)
                self.answers[told.how] += 1
            else:
                response = await self.a.client.request(
                    "POST", "/requests", body=b'{"payload":{"service_ms":2}}', timeout_s=60.0
                )
                strict(response.body)
                self.answers[response.status] += 1
                assert response.status != 500, response.body
            await self._nodes.turn()

    async def _look(self):
        for path in ("/state", "/federation", "/metrics", "/healthz"):
            response = await self.a.client.request("GET", path, timeout_s=60.0)
            assert response.status == 200, (path, response)
            if path == "/metrics":
                assert b'spillover_ledger_imbalance{cluster="a"} 0.0' in response.body
                assert b"NaN" not in response.body
            else:
                strict(response.body)

    async def _look_at_the_end(self):
        """Nothing of all that is left, and clients are served."""
        ledger = self.a.ledger
        held = [(ledger.home, ("queued", "running", "away"))]
        held.append((ledger.foreign, ("queued", "running", "handed_on")))
        await self._nodes.until(
            lambda: not any(part[entry] for part, entries in held for entry in entries),
            limit_s=60.0,
        )
        await self._look()


def test_a_node_bears_whatever_its_neighbors_say(nodes, monkeypatch, no_bug):
    monkeypatch.setattr(peer_link, "LINES", UNPACED)
    for seed in seeds():
        bed = Bed(nodes, seed)
        told = []

        async def main(bed=bed, told=told):
            told.extend(await bed.run())

        nodes.run(main, limit_s=LIMIT_S + SOAK_S)
        said = sum((rogue.said for rogue in told), Counter())
        statuses = sum((Counter(rogue.statuses) for rogue in told), Counter())
        print(f"SPILLOVER_SEED={seed}: {dict(said)} {dict(statuses)} {dict(bed.answers)}")  # noqa: T201
        assert {200, 422} <= set(statuses)
        assert min(said["reports"], said["calls"], *bed.answers.values()) > 0


# --- producers and consumers ----------------------------------------------------------------------


class Queue:
    """A producer `p1` whose peer is a rogue, and consumers that ask either."""

    def __init__(self, seed):
        self._seed = seed
        self.shell = None
        self.over = asyncio.Event()
        self.got = self.refused = 0

    async def run(self):
        async with RogueProducer("p1", self._seed, self._takes) as self.rogue, self._producing():
            caller = self.rogue.calls_to(self.url)
            work = [asyncio.create_task(self._consume(number)) for number in range(4)]
            work.append(asyncio.create_task(self._produce()))
            first = 0
            while sum(self.rogue.said.values()) < COUNT:
                await caller.run(range(first, first := first + BEFORE_LOOK // 25))
                await self._look()
            self.over.set()
            await asyncio.gather(*work)
            objects = self.shell.machine.objects
            await until(lambda: not (objects.granted or self.shell.machine.takes), limit_s=60.0)
            state = await self._look()
            kept = ("acknowledged", "buffered", "dead", "discarded")
            assert state["produced"] == sum(state[name] for name in kept)
            return self.rogue.said, caller.answers.by_status

    def _takes(self):
        """The names of those that are under way."""
        return () if self.shell is None else list(self.shell.machine.takes.by_id)

    @asynccontextmanager
    async def _producing(self):
        listening = bind_socket("127.0.0.1", 0)
        self.url = url_of(listening)
        settings = ProducerSettings(id="p1", buffers=20, visibility_s=0.2, deliveries_max=3)
        peers, random = {ID: self.rogue.url}, Random(1)
        self.shell = QueueShell(settings, peers, None, self.url, random=random)
        app = QueueApp(self.shell, object_limit_bytes=10_000)
        server = HttpServer(app)
        serving = asyncio.create_task(server.serve([listening]))
        await server.ready.wait()
        self.client = HttpClient(self.url)
        try:
            yield
        finally:
            await self.client.close()
            app.cold.state.console.close()
            await self.shell.close()
            server.stop()
            await serving

    async def _produce(self):
        header = [(b"spillover-deadline-ms", b"50")]
        while not self.over.is_set():
            answer = await self.client.request(
                "POST", "/objects", headers=header, body=b"x", timeout_s=30.0
            )
            assert answer.status in {201, 503, 429, 504}, answer

    async def _consume(self, number):
        """Handle what comes, and begin anew where a call is told never to be taken."""
        settings = ConsumerSettings(
            name=f"c{number}", producers=("p1", ID), access=None, learns=number % 2 == 0,
            max_hops=2, avoid_visited=False, at_once=4, take_s=0.1,
        )  # fmt: skip
        while not self.over.is_set():
            urls = {"p1": self.url, ID: self.rogue.url}
            shell = ConsumerShell(settings, urls, Trust(None), random=Random(number))
            try:
                while not self.over.is_set():
                    with suppress(TimeoutError):
                        held = await asyncio.wait_for(shell.next(), 0.2)
                        held.settle(well=True)
                        self.got += 1
            except Rejected:
                self.refused += 1
            finally:
                await shell.close()

    async def _look(self):
        for path in ("/metrics", "/healthz", "/state"):
            answer = await self.client.request("GET", path, timeout_s=60.0)
            assert answer.status == 200, (path, answer)
        return strict(answer.body)


def test_a_producer_and_consumers_bear_whatever_a_peer_says(nodes, monkeypatch, no_bug):
    monkeypatch.setattr(consumer_shell, "CLOSE_S", 0.1)  # a liar need not answer
    met = Counter()
    for seed in seeds():

        async def main(seed=seed):
            errors = []
            asyncio.get_running_loop().set_exception_handler(lambda _, told: errors.append(told))
            queue = Queue(seed)
            said, statuses = await queue.run()
            told = f"{dict(said)} {statuses}; {queue.got} objects, {queue.refused} refusals"
            print(f"SPILLOVER_SEED={seed}: {told}")  # noqa: T201
            assert {200, 202, 422} <= set(statuses)
            met.update({**said, "got": queue.got, "refused": queue.refused})
            assert not errors

        nodes.run(main, limit_s=LIMIT_S)
    assert min(met["got"], met["refused"], met["take"], met["answers"]) > 0


# --- sessions -------------------------------------------------------------------------------------


class RogueServers:
    """Servers of a session that announce whatever can be written."""

    def __init__(self, seed):
        self.said = 0
        self.urls = []
        self._version = 0
        fuzz = self.fuzz = Fuzzed(f"{seed} sessions", ("s0", "s1"))
        fuzz.given = {
            "_Line.version": lambda: self._version + fuzz.draw.randrange(3),
            "_Line.servers": lambda: [
                {"id": f"s{number}", "url": url}
                for number, url in enumerate(self.urls)
                if fuzz.draw.random() < 0.9
            ],
        }

    async def talk(self, reader, writer):
        # uvloop has a RuntimeError for who writes where the other end has gone.
        with suppress(ConnectionError, asyncio.IncompleteReadError, RuntimeError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"DELETE"):
                    writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n{}")
                    continue
                writer.write(b"HTTP/1.1 200 X\r\n\r\n")
                for number in range(self.fuzz.draw.randint(1, 20)):
                    writer.write(b"".join(self._line(number) for _ in range(50)))
                    await writer.drain()
                    await turn(0)
                break

    def _line(self, number):
        self.said += 1
        fuzz = self.fuzz
        self._version += fuzz.draw.random() < 0.01
        kind = session_wire._Line if number % 7 else session_wire._PartingLine
        if number == 0:  # else there is never a session
            return b"%b\n" % fuzz._written(fuzz.valid(session_wire._Line), 0.0)
        return fuzz.message(kind) + b"\n"


def _following(stack, number, urls, clients):
    """Start a client's session, which ends with the stack."""
    machine = ClientSession(f"c{number}", urls, Random(number))
    shell = SessionShell(
        f"c{number}", machine, clients.__getitem__, lambda: None, clients.__contains__
    )
    shell.start()
    stack.push_async_callback(shell.close)
    return shell


def test_a_session_bears_whatever_its_servers_announce(nodes, no_bug):
    for seed in seeds():

        async def main(seed=seed):
            errors = []
            asyncio.get_running_loop().set_exception_handler(lambda _, told: errors.append(told))
            rogue = RogueServers(seed)
            async with AsyncExitStack() as stack:
                for _ in range(3):
                    server = await stack.enter_async_context(talking(rogue.talk))
                    rogue.urls.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
                clients = {url: HttpClient(url) for url in rogue.urls}
                for client in clients.values():
                    stack.push_async_callback(client.close)
                shells = [_following(stack, number, rogue.urls, clients) for number in range(20)]
                await until(
                    lambda: rogue.said >= COUNT and any(shell.losses for shell in shells),
                    limit_s=LIMIT_S,
                )
                assert sum(shell.lies for shell in shells) > COUNT / 20
            print(f"SPILLOVER_SEED={seed}: {rogue.said} lines")  # noqa: T201
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not errors
            assert not left

        nodes.run(main, limit_s=LIMIT_S)
