"""One consumer as a running thing: the machine, its timers and its calls to producers, joined. No
rule is made here: what the machine says is done. How users see it is in `consuming`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random, SystemRandom
from typing import Any

from spillover.core.driver import Driver
from spillover.core.queue import consumer_events as cn
from spillover.core.queue.consumer import ConsumerMachine, ConsumerSettings
from spillover.live.engine.alarms import finest_alarm
from spillover.live.engine.timers import Timers
from spillover.live.http1.client import HttpClient, Response
from spillover.live.http1.outgoing import OnEnd, OutgoingRequest
from spillover.live.http1.trust import Trust
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.queue import client_wire as wire
from spillover.live.queue.client_wire import NoProducer, Received
from spillover.live.queue.held import HeldObject
from spillover.live.queue.wire import PRODUCERS_MAX
from spillover.model.addresses import may_be_led_to
from spillover.model.errors import InputError

TRANSFER_S = 30.0
"""The time that an object has to come, beyond the time that a take may wait for it."""

TELL_S = 5.0
"""The longest wait for the answer to an acknowledgement or an extension; the machine asks again
sooner."""

CHECK_S = 3.0
"""The time that a producer has to say that it is there."""

HELD_UP = (
    "an object is lost and will be handled again: this process could not extend its grant, since "
    "a handler held the event loop or Python's lock (GIL) for longer than the visibility time"
)
HINT = "handle objects in processes (queue work --workers process), or raise --visibility-ms"

CLOSE_S = 5.0
"""The time that producers have to hear of what is given back at the end."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class ConsumerShell:
    """The running consumer. `urls` are the base URLs of the producers, by id, which have to prove
    to be there to whom `trust` says; `headers` go with all that they are asked. Must be made inside
    a running loop."""

    def __init__(
        self,
        settings: ConsumerSettings,
        urls: Mapping[str, str],
        trust: Trust,
        *,
        random: Random | None = None,
        headers: wire.Headers = (),
    ) -> None:
        self.settings = settings
        self._trust, self._headers = trust, headers
        self._urls = tuple(urls.values())
        self.machine = ConsumerMachine(settings, random or SystemRandom())
        self._clients = {name: self._client_of(url) for name, url in urls.items()}
        self._timers = Timers(asyncio.get_running_loop(), finest_alarm)
        self._calls: dict[str, OutgoingRequest] = {}
        """Calls under way, by the take that they are for."""
        self._arrived: dict[str, HeldObject] = {}
        """Objects that have come, by grant, until the machine says that they are to be handled."""
        self._waiting: deque[HeldObject] = deque()
        """Objects that are to be handled, and nobody has come for them."""
        self._held: dict[str, HeldObject] = {}
        self._probes: dict[str, int] = {}
        """The number of producers that were asked, of takes that led to an address."""
        self._stopped = False
        self._broken = False
        self._error: BaseException | None = None
        self._news = asyncio.Event()
        self._driver: Driver[cn.Event, cn.Command] = Driver(
            self.machine, self._timers, self._interpreters(), self._on_failure
        )
        self._driver.start(cn.TimerFired())
        self._waiters = 0

    async def next(self, taker: object = None) -> HeldObject | None:
        """Returns the next object, for this `taker`; None after a stop, once all that was given out
        is settled.

        Raises RuntimeError where nothing can come before the taker itself settles its last object,
        and what ended the consumer early: Rejected, for a call that no producer takes.
        """
        while True:
            if self._broken and self._error is not None:
                raise self._error
            self._check_hands(taker)
            if self._waiting:
                held = self._waiting.popleft()
                held.taker = taker
                return held
            if self._stopped and self.machine.settled:
                if self._error is not None:
                    raise self._error
                return None
            await self._wait()

    async def _wait(self) -> None:
        """Wait until there is news. What nobody waits for is not asked for: to give it back would
        cost it one of its deliveries."""
        self._waiters += 1
        if self._waiters == 1:
            self._driver.feed(cn.Started())
        try:
            self._news.clear()
            await self._news.wait()
        finally:
            self._waiters -= 1
            if self._waiters == 0:
                self._driver.feed(cn.Paused())

    def stop(self) -> None:
        """Ask for nothing more; what nobody has come for is given back."""
        if self._stopped:
            return
        self._stopped = True
        self._driver.feed(cn.Stopped())
        while self._waiting:
            self._waiting.popleft().settle(well=False, rest_s=0.0)
        self._news.set()

    async def close(self) -> None:
        """Give back whatever is held, and let go of everything."""
        self.stop()
        for held in list(self._held.values()):
            if not held.is_settled:
                held.settle(well=False, rest_s=0.0)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle(), CLOSE_S)
        self._driver.close()
        self._timers.close()
        for held in self._held.values():
            held.came_out(None)
        for client in self._clients.values():
            await client.close()

    async def _idle(self) -> None:
        while not (self.machine.idle or self._broken):
            self._news.clear()
            await self._news.wait()

    def _check_hands(self, taker: object) -> None:
        if self.settings.at_once > 1 or self._stopped:
            return
        for held in self._held.values():
            is_taken = not held.is_settled and held not in self._waiting
            if is_taken and held.taker == taker:
                expected = "expected the last object to be settled before the next one is asked for"
                hint = "`async with obj:`, ack() or nack(), or more of them `at_once`"
                raise RuntimeError(f"{expected}: {hint}")

    def _on_failure(self, error: BaseException) -> None:
        """The machine, or what obeys it, is broken: nothing more can be known of anything."""
        self._error, self._broken = error, True
        for held in self._held.values():
            held.came_out(None)
        self._news.set()

    # --- commands -----------------------------------------------------------------------------

    def _interpreters(self) -> dict[type[cn.Command], Callable[[Any], None]]:
        return {
            cn.Take: self._take,
            cn.Fetch: self._fetch,
            cn.Handle: self._handle,
            cn.Lost: self._lost,
            cn.Tell: self._tell,
            cn.Settled: self._settled,
            cn.Abandon: self._abandon,
            cn.Check: self._check,
        }

    def _take(self, command: cn.Take) -> None:
        settings, client = self.settings, self._clients[command.producer]

        def ended(came_to: Response | BaseException) -> None:
            self._driver.feed(self._taken(command, came_to))

        self._send(
            command.take,
            client,
            ("POST", "/take"),
            ended,
            wire.encode_take(command, settings),
            (wire.deadline(settings.take_s),),
            timeout_s=settings.take_s + TRANSFER_S,
        )

    def _taken(self, command: cn.Take, came_to: Response | BaseException) -> cn.Event:
        take, producer = command.take, command.producer
        if isinstance(came_to, BaseException):
            return cn.Unreachable(take, producer)
        try:
            match came_to.status:
                case 200:
                    return self._given(take, producer, wire.read_object(came_to))
                case 204:
                    return cn.Nothing(take)
                case 303:
                    return self._pointed(take, producer, wire.read_address(came_to))
        except NoProducer:
            return cn.Unreachable(take, producer)
        if wire.is_rejected(came_to):
            self._error = wire.error_of(producer, came_to)
            self.stop()
        return cn.Unreachable(take, producer)

    def _pointed(self, take: str, producer: str, address: wire.Address) -> cn.Event:
        """A producer that nobody has told of may be new."""
        if address.producer not in self._clients:
            is_full = len(self._clients) >= PRODUCERS_MAX  # whoever names so many makes them up
            if is_full or not may_be_led_to(address.base_url, self._urls):
                return cn.Unreachable(take, producer)
            try:
                self._clients[address.producer] = self._client_of(address.base_url)
            except InputError:
                return cn.Unreachable(take, producer)
        self._probes[take] = address.probes
        return cn.Pointed(take, address.producer, address.grant)

    def _client_of(self, url: str) -> HttpClient:
        return wire.client_of(url, self._trust, self._headers)

    def _given(self, take: str, producer: str, received: Received) -> cn.Event:
        """An object of the `producer` that was asked, whatever that calls itself."""
        grant = received.grant
        self._arrived[grant] = HeldObject(received, self._driver.feed)
        return cn.Given(take, producer, grant, received.visibility_s)

    def _fetch(self, command: cn.Fetch) -> None:
        take, client = command.take, self._clients[command.producer]

        def ended(came_to: Response | BaseException) -> None:
            self._driver.feed(self._fetched(command, came_to))

        request = ("GET", wire.object_path(command.grant))
        self._send(take, client, request, ended, timeout_s=TRANSFER_S)

    def _fetched(self, command: cn.Fetch, came_to: Response | BaseException) -> cn.Event:
        take, probes = command.take, self._probes.pop(command.take)
        if isinstance(came_to, Response):
            if came_to.status == 200:
                with suppress(NoProducer):
                    return self._given(take, command.producer, wire.read_object(came_to, probes))
            if wire.is_unknown_grant(came_to):
                return cn.Nothing(take)
        return cn.Unreachable(take, command.producer)

    def _send(
        self,
        take: str,
        client: HttpClient,
        request: tuple[str, str],
        ended: OnEnd,
        body: bytes = b"",
        headers: wire.Headers = (),
        *,
        timeout_s: float,
    ) -> None:
        """Send a call of a take, which can be broken off until its answer is there."""
        method, path = request

        def on_end(came_to: Response | BaseException) -> None:
            self._calls.pop(take, None)
            ended(came_to)

        call = client.send(method, path, on_end, headers=headers, body=body, timeout_s=timeout_s)
        if call.on_end is not None:
            self._calls[take] = call

    def _abandon(self, command: cn.Abandon) -> None:
        self._probes.pop(command.take, None)
        call = self._calls.pop(command.take, None)
        if call is not None:
            call.cancel()

    def _check(self, command: cn.Check) -> None:
        def ended(came_to: Response | BaseException) -> None:
            if isinstance(came_to, BaseException):
                self._driver.feed(cn.Silent(command.producer))

        self._clients[command.producer].send("GET", "/healthz", ended, timeout_s=CHECK_S)

    def _handle(self, command: cn.Handle) -> None:
        held = self._held[command.grant] = self._arrived.pop(command.grant)
        self._waiting.append(held)
        self._news.set()

    def _lost(self, command: cn.Lost) -> None:
        held = self._held[command.grant]
        held.lost.set()
        if command.late_s:
            told = {"object": held.received.id, "late_s": round(command.late_s, 3), "hint": HINT}
            _log.warning(Message(HELD_UP, **told))

    def _tell(self, command: cn.Tell) -> None:
        grant, what = command.grant, command.what

        def ended(came_to: Response | BaseException) -> None:
            if isinstance(came_to, BaseException):
                return
            if came_to.status == 204 or wire.is_unknown_grant(came_to):
                self._driver.feed(cn.Heard(grant, what, came_to.status == 204))

        client = self._clients[command.producer]
        body = wire.encode_nack(command.rest_s) if what == "nack" else b""
        client.send("POST", wire.grant_path(grant, what), ended, body=body, timeout_s=TELL_S)

    def _settled(self, command: cn.Settled) -> None:
        self._held.pop(command.grant).came_out(command.known)
        self._news.set()
