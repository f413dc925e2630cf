"""A simulated consumer: the machine that clients run, and its calls. How long a handler takes, and
whether it does well, is drawn by whoever makes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from spillover.core.driver import Driver
from spillover.core.machine import Machine
from spillover.core.queue import consumer_events as cn
from spillover.core.queue import events as ev
from spillover.core.queue.consumer import ConsumerMachine, ConsumerSettings
from spillover.sim.engine.clock import Clock
from spillover.sim.engine.world import stream
from spillover.sim.queue import wires as kinds
from spillover.sim.queue.process import Process, Watched
from spillover.sim.queue.producer import SimProducer
from spillover.sim.queue.wires import Wires

PATIENCE_S = 3.0
"""So long after the end of a take its consumer hangs up."""

_EVENTS: dict[str, Callable[[int, str], ev.Event]] = {
    "ack": ev.Acked,
    "nack": ev.Nacked,
    "extend": ev.Extended,
}


class SentCall:
    """A take or a fetch, as long as it is `open` at the consumer."""

    def __init__(self, take: str, producer: SimProducer) -> None:
        self.take, self.producer = take, producer
        self.open = True
        self.hang_up: Callable[[], None] | None = None
        """Has the producer see that nobody waits; none while it has not begun, or is answered."""


class SimConsumer(Process):
    """One consumer. `work()` gives how long the handler takes for an object, and whether it does
    well. `begun(take)`, `came(take, probes)` and `done()` look on, and `watch` after each event."""

    def __init__(
        self,
        settings: ConsumerSettings,
        producers: Mapping[str, SimProducer],
        wires: Wires,
        clock: Clock,
        seed: int,
        *,
        work: Callable[[], tuple[float, bool]],
        watch: Callable[[SimConsumer], None] | None = None,
    ) -> None:
        super().__init__(settings.name, wires.world, clock)
        self.settings = settings
        self.handled = 0
        """Objects that were given to the handler."""
        self.begun: Callable[[str], None] = _nothing
        self.came: Callable[[str, int], None] = _nothing
        self.done: Callable[[], None] = _nothing
        self._producers = producers
        self._wires = wires
        self._seed = seed
        self._work = work
        self._watch = watch
        self._random = stream(seed, f"wire/{self.name}")
        self._calls: dict[SentCall, None] = {}
        self._probes: dict[str, int] = {}
        """The number of probes that found the object of each take, which is on its way."""
        self._interpreters: dict[type[cn.Command], Callable[[Any], None]] = {
            cn.Take: self._take,
            cn.Fetch: self._fetch,
            cn.Handle: self._handle,
            cn.Lost: _nothing,
            cn.Settled: _nothing,
            cn.Abandon: self._abandon,
            cn.Check: self._check,
            cn.Tell: self._tell,
        }
        self.machine: ConsumerMachine
        self._driver: Driver[cn.Event, cn.Command]

    # --- life ---------------------------------------------------------------------------------

    def boot(self) -> None:
        super().boot()
        random = stream(self._seed, f"{self.name}/{self.life}")
        self.machine = ConsumerMachine(self.settings, random)
        machine: Machine[cn.Event, cn.Command] = self.machine
        if (watch := self._watch) is not None:
            machine = Watched(machine, lambda *_: watch(self))
        self._driver = Driver(machine, self.timers, self._interpreters)
        self._driver.start(cn.TimerFired())
        self.feed(cn.Started())

    def halt(self) -> None:
        """Its connections close."""
        super().halt()
        self._driver.close()
        for call in list(self._calls):
            self._close(call)

    def feed(self, event: cn.Event) -> None:
        self._driver.feed(event)

    # --- calls --------------------------------------------------------------------------------

    def _open(self, take: str, producer: str) -> SentCall:
        call = SentCall(take, self._producers[producer])
        self._calls[call] = None
        if not self._wires.reliable:
            self.later(self.settings.take_s + PATIENCE_S, self.failed, call)
        return call

    def _close(self, call: SentCall) -> None:
        """Nobody waits for the answer any more; the producer sees that, unless it is cut off."""
        call.open = False
        self._calls.pop(call, None)
        if call.hang_up is not None:
            hang_up, call.hang_up = call.hang_up, None
            producer = call.producer
            seen = partial(producer.deliver, hang_up)
            self._wires.send(self.name, producer.name, kinds.TELL, seen, _nothing)

    def failed(self, call: SentCall) -> None:
        """It cannot be reached, has broken off, or did not answer in time."""
        if call.open:
            self._close(call)
            self._probes.pop(call.take, None)
            self.feed(cn.Unreachable(call.take, call.producer.name))

    def answered(self, call: SentCall, event: cn.Event) -> None:
        if call.open:
            call.hang_up = None
            self._close(call)
            self.feed(event)

    def _call(self, call: SentCall, kind: str, come: Callable[[], None]) -> None:
        wires, producer = self._wires, call.producer
        failed = partial(self.deliver, self.failed, call)
        refused = partial(wires.lose, failed)
        wires.send(self.name, producer.name, kind, partial(producer.reached, come, refused), failed)

    def _answer(self, call: SentCall, kind: str, event: cn.Event) -> None:
        self._wires.send(
            call.producer.name,
            self.name,
            kind,
            partial(self.deliver, self.answered, call, event),
            partial(self.deliver, self.failed, call),
        )

    # --- commands -----------------------------------------------------------------------------

    def _take(self, command: cn.Take) -> None:
        settings = self.settings
        call = self._open(command.take, command.producer)
        producer = call.producer
        self.begun(command.take)

        def come() -> None:
            if not call.open:
                return
            until_s = producer.clock.now_s() + settings.take_s
            refs: list[int] = []

            def hang_up() -> None:
                for ref in refs:
                    producer.hang_up(ref, ev.TakeGone(ref))

            call.hang_up = hang_up
            refs.append(
                producer.ask(
                    lambda ref: ev.Taken(
                        ref,
                        command.take,
                        self.name,
                        settings.max_hops,
                        command.access,
                        settings.avoid_visited,
                        until_s,
                    ),
                    partial(self._take_answered, call),
                )
            )

        self._call(call, kinds.TAKE, come)

    def _take_answered(self, call: SentCall, command: ev.Command | None) -> None:
        call.hang_up = None
        match command:
            case ev.Give(_, grant, _, probes):
                self._probes[call.take] = probes
                self._send_object(call, grant)
            case ev.Direct(_, offer):
                self._probes[call.take] = offer.probes
                pointed = cn.Pointed(call.take, offer.producer, offer.grant)
                self._answer(call, kinds.POINTER, pointed)
            case ev.NoObject():
                self._answer(call, kinds.TOLD, cn.Nothing(call.take))
            case _:  # it takes no calls, or has died
                self._wires.lose(partial(self.deliver, self.failed, call))

    def _fetch(self, command: cn.Fetch) -> None:
        call = self._open(command.take, command.producer)
        producer, grant = call.producer, command.grant

        def come() -> None:
            if call.open:
                answered = partial(self._fetch_answered, call)
                producer.ask(lambda ref: ev.Fetched(ref, grant), answered)

        self._call(call, kinds.FETCH, come)

    def _fetch_answered(self, call: SentCall, command: ev.Command | None) -> None:
        match command:
            case ev.Give(_, grant, _, _):
                self._send_object(call, grant)
            case ev.Told():  # it has ended
                self._answer(call, kinds.TOLD, cn.Nothing(call.take))
            case _:
                self._wires.lose(partial(self.deliver, self.failed, call))

    def _send_object(self, call: SentCall, grant: str) -> None:
        """Send an object of the producer. A small one is sent once the kernel has it; of a larger
        one it is seen whether all of it was taken."""
        producer, wires = call.producer, self._wires
        is_small = not wires.reliable and self._random.random() < 0.5
        if is_small:
            producer.later(0.0, partial(producer.sent, grant, whole=True))
        life = producer.life

        def told(*, whole: bool) -> None:
            if not is_small and life == producer.life:
                producer.deliver(partial(producer.sent, grant, whole=whole))

        def arrive() -> None:
            if not (self.alive and call.open):
                told(whole=False)
            elif life != producer.life and not is_small:
                self.deliver(self.failed, call)  # it broke off in the middle
            else:
                told(whole=True)
                self.came(call.take, self._probes.pop(call.take, 0))
                lasts_s = producer.settings.visibility_s
                given = cn.Given(call.take, producer.name, grant, lasts_s)
                self.deliver(self.answered, call, given)

        def lost() -> None:
            told(whole=False)
            self.deliver(self.failed, call)

        wires.send(producer.name, self.name, kinds.OBJECT, arrive, lost)

    def _abandon(self, command: cn.Abandon) -> None:
        for call in [one for one in self._calls if one.take == command.take]:
            self._close(call)

    def _check(self, command: cn.Check) -> None:
        """Whether it answers at all."""
        wires, producer = self._wires, self._producers[command.producer]
        if wires.reliable:
            return
        heard: list[str] = []

        def serve() -> None:
            come = partial(heard.append, command.producer)
            wires.send(producer.name, self.name, kinds.TOLD, come, _nothing)

        def silent() -> None:
            if not heard:
                self.feed(cn.Silent(producer.name))

        seen = partial(producer.deliver, serve)
        wires.send(self.name, producer.name, kinds.TELL, seen, _nothing)
        self.later(kinds.TIMEOUT_S, silent)

    def _handle(self, command: cn.Handle) -> None:
        self.handled += 1
        takes_s, well = self._work()
        if takes_s < math.inf:
            self.later(takes_s, self._end, cn.Handled(command.grant, well))

    def _end(self, event: cn.Handled) -> None:
        self.done()
        self.feed(event)

    def _tell(self, command: cn.Tell) -> None:
        wires, producer = self._wires, self._producers[command.producer]
        grant, what = command.grant, command.what
        make = _EVENTS[what]

        def reply(answer: ev.Command | None) -> None:
            if isinstance(answer, ev.Told):
                heard = cn.Heard(grant, what, answer.known)
                come = partial(self.deliver, self.feed, heard)
                wires.send(producer.name, self.name, kinds.TOLD, come, _nothing)

        def serve() -> None:
            producer.ask(lambda ref: make(ref, grant), reply)

        wires.send(self.name, producer.name, kinds.TELL, partial(producer.deliver, serve), _nothing)


def _nothing(*_: object) -> None:
    """Nobody looks on, or nobody is told."""
