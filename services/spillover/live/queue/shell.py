"""One producer of the distributed queue as a running thing: the machine, its timers, its objects
and its peers, joined. No rule is made here: what the machine says is done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from random import Random, SystemRandom
from typing import Any

from spillover.core.driver import Driver
from spillover.core.queue import events as ev
from spillover.core.queue.producer import ProducerMachine
from spillover.core.queue.settings import ProducerSettings
from spillover.live.engine.alarms import finest_alarm
from spillover.live.engine.timers import Timers
from spillover.live.http1.client import HttpClient, Response
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.queue import wire
from spillover.live.queue.bodies import Bodies
from spillover.live.queue.certified import CertifiedProducers
from spillover.live.queue.history import QueueHistory
from spillover.live.queue.metrics import QueueMetrics
from spillover.live.queue.store import ObjectStore
from spillover.model.errors import PeerError

PEER_TIMEOUT_S = 2.0
"""The longest wait for the answer to a probe or an offer. An offer without one counts as
declined."""

PEER_IDLE_S = 90.0
"""So long a connection to a peer is kept for the next probe, which else has to wait for one: where
there are many peers, or little goes on, each is asked seldom. Less than a producer keeps it."""

LOOK_S = 0.4
"""The time that a peer has to tell its state to people who look."""

ENDING = "the producer ends: it"

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class QueueShell:
    """The running producer. `peers` are the base URLs of the others, by id, and `own_url` is where
    consumers reach this one; `headers` go with what peers are asked, and where producers are
    `certified` peers have to prove who they are. Must be made inside a running loop."""

    def __init__(
        self,
        settings: ProducerSettings,
        peers: Mapping[str, str],
        store: ObjectStore | None,
        own_url: str,
        *,
        random: Random | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
        certified: CertifiedProducers | None = None,
    ) -> None:
        self.settings = settings
        self.certified = certified
        self.peers = dict(peers)
        self.public_urls = {**peers, settings.id: own_url}
        """Where consumers reach each producer."""
        self.epoch = time.time_ns() // 1_000_000
        life = "" if store is not None else f"{self.epoch:x}-"
        self.object_prefix = f"{settings.id}-{life}"
        """The beginning of objects' ids. In memory numbers begin anew with each process: its
        objects must not be taken for those of another one."""
        self.machine = ProducerMachine(settings, tuple(peers), random or SystemRandom())
        self.timers = Timers(asyncio.get_running_loop(), finest_alarm)
        self.bodies = Bodies(store, self.timers.clock)
        self.history = QueueHistory(self.machine, self.timers.clock)
        self.metrics = QueueMetrics(self.machine, self.bodies, self.oldest_s)
        self._clients = {p: self._client_of(p, url, headers) for p, url in peers.items()}
        if certified is not None:
            certified.keep_new(self._clients.values())
        self._calls: dict[int, asyncio.Future[ev.Command]] = {}
        """The futures that callers wait for, by ref."""
        self._refs = 0
        self._drained = asyncio.Event()
        self.on_draining: list[Callable[[bool], None]] = []
        """Functions that learn whether it drains: they send clients elsewhere, or let them stay."""
        self._was_draining = False
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._driver: Driver[ev.Event, ev.Command] = Driver(
            *(self.machine, self.timers, self._interpreters(), self.fail),
            journal=self.history.saw,
        )
        for one in self.bodies.recover():
            held_bytes = 0 if one.body is None else one.size_bytes
            rest_s = self.bodies.rest_s(one)
            self._driver.feed(
                ev.Recovered(one.number, one.deliveries, bool(one.dead), held_bytes, rest_s)
            )
        self._driver.start(ev.TimerFired())

    def _client_of(self, peer: str, url: str, headers: Sequence[tuple[bytes, bytes]]) -> HttpClient:
        proving = {} if self.certified is None else self.certified.options_of(peer)
        return HttpClient(
            url,
            headers=headers,
            idle_s_max=PEER_IDLE_S,
            connect_timeout_s=1.0,
            user_timeout_s=PEER_TIMEOUT_S,
            **proving,
        )

    # --- what routes call ---------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Returns the producer's clock: monotonic, of this machine alone."""
        return self.timers.clock()

    def object_id(self, number: int) -> str:
        return f"{self.object_prefix}{number}"

    def feed(self, event: ev.Event) -> None:
        self._driver.feed(event)
        if self.machine.draining is not self._was_draining:
            self._was_draining = self.machine.draining
            for tell in self.on_draining:
                tell(self._was_draining)
        if self.machine.draining and self.is_empty:
            self._drained.set()

    @property
    def is_empty(self) -> bool:
        """Returns whether nothing is lost or told wrong if the process ends now. What waits in a
        store is there after the next start."""
        machine = self.machine
        if not self.bodies.is_durable:
            return machine.drained
        return not (machine.objects.granted or machine.room.admitted or machine.takes)

    def oldest_s(self) -> dict[str, float]:
        """Returns how long those wait that wait longest: an object for a consumer, an offer for a
        place, a take for an object, a probe that is parked here."""
        machine, now_s = self.machine, self.now_s
        since: dict[str, float | None] = {
            "object": next((self.bodies[one].since_s for one in machine.objects), None),
            "offer": next((one.since_s for one in machine.offers.values()), None),
            "take": next((one.begun_s for one in machine.takes.by_id.values()), None),
            "probe": next(
                (one.until_s - one.probe.left_s for one in machine.parked_probes.values()), None
            ),
        }
        return {what: 0.0 if s is None else max(0.0, now_s - s) for what, s in since.items()}

    async def ask(
        self,
        make: Callable[[int], ev.Event],
        watch: Callable[[Callable[[], None]], None] | None = None,
        gone: Callable[[int], ev.Event] | None = None,
    ) -> Any:
        """Feed the event that `make` gives for a new ref, and wait for the command that answers it.
        `watch` is given what to call when whoever asks has gone: the ref is the answer then, and
        what `gone` gives for it is fed at once. A turn of the loop later a peer's object might have
        been taken for nobody."""
        ref = self._next_ref()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[ref] = answer

        def leave() -> None:
            if not answer.done():
                answer.set_result(ref)
                if gone is not None:
                    self.feed(gone(ref))

        try:
            if watch is not None:
                watch(leave)
            if not (answer.done() and gone):  # it may have gone already
                self.feed(make(ref))
            return await answer
        finally:
            self._calls.pop(ref, None)

    def ask_now(self, make: Callable[[int], ev.Event]) -> Any:
        """Returns what `ask` does, where the machine answers at once; None if the producer has
        ended."""
        ref = self._next_ref()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[ref] = answer
        try:
            self.feed(make(ref))
        finally:
            del self._calls[ref]
        return answer.result() if answer.done() else None

    async def ask_peers(self, path: str, count_max: int) -> dict[str, bytes | None]:
        """Returns what peers answer to GET; None of those that do not."""

        async def ask(client: HttpClient) -> bytes | None:
            try:
                response = await client.request("GET", path, timeout_s=LOOK_S)
            except PeerError:
                return None
            return response.body if response.status == 200 else None

        asked = dict(islice(self._clients.items(), count_max))
        bodies = await asyncio.gather(*(ask(client) for client in asked.values()))
        return dict(zip(asked, bodies, strict=True))

    def object_read(
        self, ref: int, content_type: str, content: bytes
    ) -> asyncio.Future[ev.Command]:
        """The object of an offer that was admitted is here. What comes of it: Accept, or
        RefuseOffer."""
        number = self.bodies.add(content_type, content)
        answer: asyncio.Future[ev.Command] = asyncio.get_running_loop().create_future()
        self._calls[ref] = answer
        answer.add_done_callback(lambda _: self._calls.pop(ref, None))
        self.feed(ev.Read(ref, number, self.bodies.held_bytes(len(content))))
        return answer

    async def drain(self, timeout_s: float) -> None:
        """Take no object any more, and give away those that are here, for so long; without waiting
        for those that outlive the process."""
        self._drained.clear()
        self.feed(ev.Drain())
        if not self.is_empty:
            _log.warning(Message(f"{ENDING} waits for {self._left()}"))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._drained.wait(), timeout_s)

    async def close(self) -> None:
        """Let go of everything; what is on disk stays there. Says what is lost."""
        self._driver.close()
        objects = self.machine.objects
        left = objects.buffered + len(objects.granted) + len(objects.dead)
        if left and self.bodies.is_durable:
            _log.info(Message(f"{ENDING} keeps {left} objects in its store"))
        elif left:
            _log.error(Message(f"{ENDING} loses objects that were in memory: {self._left()}"))
        self.timers.close()
        for answer in self._calls.values():
            answer.cancel()
        for client in self._clients.values():
            await client.close()
        self.bodies.close()
        self.failed.cancel()

    def _left(self) -> str:
        objects = self.machine.objects
        return (
            f"{objects.buffered} that nobody took, {len(objects.granted)} given and not "
            f"acknowledged, {len(objects.dead)} dead"
        )

    def _next_ref(self) -> int:
        self._refs += 1
        return self._refs

    def fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # retrieved: it also comes out where the event came in

    # --- commands -----------------------------------------------------------------------------

    def _interpreters(self) -> dict[type[ev.Command], Callable[[Any], None]]:
        answers = (
            *(ev.Admit, ev.RefuseOffer, ev.Accept, ev.AnswerOffer, ev.Direct),
            *(ev.NoObject, ev.RefuseTake, ev.Told),
        )
        return {
            **dict.fromkeys(answers, self._answer),
            ev.Give: self._give,
            ev.Store: self._store,
            ev.Forget: self._forget,
            ev.Bury: self._bury,
            ev.Rest: self._rest,
            ev.SendProbe: self._send_probe,
            ev.SendOffer: self._send_offer,
        }

    def _answer(self, command: Any) -> None:
        self.metrics.count(command)
        self.history.did(command)
        answer = self._calls.get(command.ref)
        if answer is not None and not answer.done():
            answer.set_result(command)
        elif isinstance(command, ev.Give):  # whoever asked has just gone
            self.feed(ev.Sent(command.grant, whole=False))
        elif isinstance(command, ev.Admit):
            self.feed(ev.OfferGone(command.ref))

    def _give(self, command: ev.Give) -> None:
        number = command.number
        self.bodies.delivered(number, self.machine.objects.deliveries(number))
        self._answer(command)

    def _store(self, command: ev.Store) -> None:
        number = command.number

        def stored(error: BaseException | None) -> None:
            if error is None:
                self.feed(ev.Stored(number))
            else:
                _log.error(Message("an object cannot be stored", problem=str(error)))
                self.feed(ev.NotStored(number))

        self.bodies.store(number, stored)

    def _forget(self, command: ev.Forget) -> None:
        self.bodies.forget(command.number)

    def _bury(self, command: ev.Bury) -> None:
        deliveries = self.machine.objects.deliveries(command.number)
        self.bodies.note(command.number, deliveries, dead=command.dead)
        self.history.did(command)

    def _rest(self, command: ev.Rest) -> None:
        deliveries = self.machine.objects.deliveries(command.number)
        self.bodies.note(command.number, deliveries, rest_s=command.rest_s)
        self.history.did(command)

    def _send_probe(self, command: ev.SendProbe) -> None:
        body = wire.encode_probe(command.probe)

        def ended(came_to: Response | BaseException) -> None:
            # What is not known to have come counts as not come: two probes are better than none.
            if not (isinstance(came_to, Response) and came_to.status == 202):
                self._tell_unreachable(command.peer, came_to)
                self.feed(ev.ProbeNotSent(command.probe, command.peer))

        self._clients[command.peer].send(
            "POST", wire.PROBE_PATH, ended, body=body, timeout_s=PEER_TIMEOUT_S
        )
        self.history.did(command)  # a consumer waits for the probe, nobody for this

    def _send_offer(self, command: ev.SendOffer) -> None:
        offer = command.offer

        def ended(came_to: Response | BaseException) -> None:
            taken = False
            try:
                if isinstance(came_to, Response) and came_to.status == 200:
                    taken = wire.decode_taken(came_to.body)
                else:
                    self._tell_unreachable(command.peer, came_to)
            except wire.MalformedMessage as error:
                told = {"peer": command.peer, "problem": str(error)}
                _log.warning(Message("a peer says what no producer says", **told))
            self.feed(ev.OfferAnswered(offer.grant, taken))

        client = self._clients.get(command.peer)
        if client is None:  # a probe from a producer that is no peer
            self.history.did(command)
            self.feed(ev.OfferAnswered(offer.grant, taken=False))
            return
        client.send(
            "POST",
            wire.OFFER_PATH,
            ended,
            body=wire.encode_offer(offer),
            timeout_s=PEER_TIMEOUT_S,
        )
        self.history.did(command)  # as above

    def _tell_unreachable(self, peer: str, came_to: Response | BaseException) -> None:
        problem = f"status {came_to.status}" if isinstance(came_to, Response) else str(came_to)
        if isinstance(came_to, PeerError | Response):
            _log.warning(Message("a peer cannot be reached", peer=peer, problem=problem))
