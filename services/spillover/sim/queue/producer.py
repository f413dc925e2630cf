"""A simulated producer: the machine of the service, its disk, and the calls that are open at it. No
rule is made here: what the machine says is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

from spillover.core.driver import Driver
from spillover.core.machine import Machine
from spillover.core.queue import events as ev
from spillover.core.queue.producer import ProducerMachine
from spillover.core.queue.settings import ProducerSettings
from spillover.sim.engine.clock import Clock
from spillover.sim.engine.world import stream
from spillover.sim.queue import wires as kinds
from spillover.sim.queue.process import Process, Watched
from spillover.sim.queue.wires import Wires

Reply: TypeAlias = Callable[[ev.Command | None], None]
"""What a caller does with the answer; None: the connection has broken."""


class ProducerWatch(Protocol):
    """Looks on at all producers and changes nothing."""

    def started(self, producer: SimProducer) -> None:
        """Another life begins; what was stored is in its machine."""

    def died(self, producer: SimProducer) -> None:
        """And with it what was not stored."""

    def handled(
        self, producer: SimProducer, event: ev.Event, now_s: float, commands: list[ev.Command]
    ) -> None:
        """These are the commands, not carried out yet; `now_s` is by the producer's clock."""

    def told(self, producer: SimProducer, ref: int) -> None:
        """This call, about a grant or a dead object, is answered."""


class Disk:
    """What outlives a producer's process. `full`: it takes no object any more."""

    def __init__(self, commit_s: float) -> None:
        self.commit_s = commit_s
        """How long it takes until something is safe."""
        self.full = False
        self.objects: dict[int, tuple[int, bool]] = {}
        """How often each was granted as far as that was noted, and whether it is dead."""


class SimProducer(Process):
    """One producer. `others` are all of the queue, by name, this one among them. Without a disk its
    objects are in memory."""

    def __init__(
        self,
        settings: ProducerSettings,
        others: Mapping[str, SimProducer],
        wires: Wires,
        clock: Clock,
        seed: int,
        *,
        disk: Disk | None = None,
        watch: ProducerWatch | None = None,
    ) -> None:
        super().__init__(settings.id, wires.world, clock)
        self.settings = settings
        self.disk = disk
        self._others = others
        self._wires = wires
        self._seed = seed
        self._watch = watch
        self._random = stream(seed, f"wire/{self.name}")
        self._last = 0
        """The number of the newest object, over all lives: each is one for good."""
        self._calls: dict[int, Reply] = {}
        self._refs = 0
        self._interpreters = self._all_interpreters()
        self.machine: ProducerMachine
        self._driver: Driver[ev.Event, ev.Command]

    # --- life ---------------------------------------------------------------------------------

    def boot(self) -> None:
        super().boot()
        peers = tuple(name for name in self._others if name != self.name)
        random = stream(self._seed, f"{self.name}/{self.life}")
        self.machine = ProducerMachine(self.settings, peers, random)
        machine: Machine[ev.Event, ev.Command] = self.machine
        if self._watch is not None:
            machine = Watched(machine, partial(self._watch.handled, self))
        self._driver = Driver(machine, self.timers, self._interpreters)
        if self.disk is not None:
            for number, (deliveries, dead) in sorted(self.disk.objects.items()):
                self.machine.handle(ev.Recovered(number, deliveries, dead), self.clock.now_s())
        if self._watch is not None:
            self._watch.started(self)
        self._driver.start(ev.TimerFired())

    def halt(self) -> None:
        """Calls that were open break off."""
        if self._watch is not None:
            self._watch.died(self)
        super().halt()
        self._driver.close()
        calls, self._calls = self._calls, {}
        for reply in calls.values():
            reply(None)

    def feed(self, event: ev.Event) -> None:
        self._driver.feed(event)

    def reached(self, happen: Callable[[], None], refused: Callable[[], None]) -> None:
        """A message is here, or nobody is."""
        if self.alive:
            self.deliver(happen)
        else:
            refused()

    # --- callers ------------------------------------------------------------------------------

    def ask(self, make: Callable[[int], ev.Event], reply: Reply) -> int:
        """Feed the event of a new call. Its ref."""
        self._refs += 1
        ref = self._refs
        self._calls[ref] = reply
        self.feed(make(ref))
        return ref

    def hang_up(self, ref: int, gone: ev.Event) -> None:
        """Whoever called has gone, and is seen to."""
        if self._calls.pop(ref, None) is not None:
            self.feed(gone)

    def read(self, ref: int, reply: Reply) -> None:
        """The object of an offer that was admitted is here whole."""
        self._last += 1
        self._calls[ref] = reply
        self.feed(ev.Read(ref, self._last))

    def sent(self, grant: str, *, whole: bool) -> None:
        self.feed(ev.Sent(grant, whole))

    # --- commands -----------------------------------------------------------------------------

    def _all_interpreters(self) -> dict[type[ev.Command], Callable[[Any], None]]:
        answers = (
            *(ev.Admit, ev.RefuseOffer, ev.Accept, ev.AnswerOffer, ev.Give, ev.Direct),
            *(ev.NoObject, ev.RefuseTake),
        )
        return {
            **dict.fromkeys(answers, self._answer),
            ev.Told: self._told,
            ev.Store: self._store,
            ev.Forget: self._forget,
            ev.Bury: self._bury,
            ev.SendProbe: self._send_probe,
            ev.SendOffer: self._send_offer,
        }

    def _answer(self, command: Any) -> None:
        if isinstance(command, ev.Give):
            self._keep_note(command.number, dead=False)
        reply = self._calls.pop(command.ref, None)
        if reply is not None:
            reply(command)
        elif isinstance(command, ev.Give):  # whoever asked has just gone
            self.feed(ev.Sent(command.grant, whole=False))
        elif isinstance(command, ev.Admit):
            self.feed(ev.OfferGone(command.ref))

    def _told(self, command: ev.Told) -> None:
        """What was acknowledged is answered once the disk knows."""
        if self.disk is None:
            self._tell(command)
        else:
            self.later(self.disk.commit_s, self._tell, command)

    def _tell(self, command: ev.Told) -> None:
        if self._watch is not None:
            self._watch.told(self, command.ref)
        self._answer(command)

    def _store(self, command: ev.Store) -> None:
        number, disk = command.number, self.disk
        if disk is None:
            self.feed(ev.Stored(number))
        elif disk.full:
            self.later(disk.commit_s, self.feed, ev.NotStored(number))
        else:
            self.later(disk.commit_s * self._random.random(), self._commit, number)

    def _commit(self, number: int) -> None:
        """It is safe; that is told a little later."""
        assert self.disk is not None  # noqa: S101 - it was asked to store
        self.disk.objects[number] = (0, False)
        self.later(self.disk.commit_s, self.feed, ev.Stored(number))

    def _forget(self, command: ev.Forget) -> None:
        if self.disk is not None:
            after_s = self.disk.commit_s * self._random.random()
            self.later(after_s, self._erase, command.number)

    def _erase(self, number: int) -> None:
        if self.disk is not None:
            del self.disk.objects[number]

    def _bury(self, command: ev.Bury) -> None:
        self._keep_note(command.number, dead=command.dead)

    def _keep_note(self, number: int, *, dead: bool) -> None:
        if self.disk is not None:
            note = (self.machine.objects.deliveries(number), dead)
            self.later(self.disk.commit_s, self._note, number, note)

    def _note(self, number: int, note: tuple[int, bool]) -> None:
        if self.disk is not None and number in self.disk.objects:
            self.disk.objects[number] = note

    def _send_probe(self, command: ev.SendProbe) -> None:
        peer, probe = self._others[command.peer], command.probe

        def serve(reply: Callable[[Any], None]) -> None:
            if not self._wires.reliable:  # else nobody looks at the answer
                reply(202)
            peer.feed(ev.ProbeCame(probe))

        def ended(answer: Any) -> None:
            # What is not known to have come counts as not come.
            if answer is None:
                self.feed(ev.ProbeNotSent(probe, peer.name))

        self._post(peer, kinds.PROBE, serve, ended)

    def _send_offer(self, command: ev.SendOffer) -> None:
        peer, offer = self._others[command.peer], command.offer

        def serve(reply: Callable[[Any], None]) -> None:
            peer.ask(lambda ref: ev.OfferCame(ref, offer), reply)

        def ended(answer: ev.AnswerOffer | None) -> None:
            self.feed(ev.OfferAnswered(offer.grant, answer is not None and answer.taken))

        self._post(peer, kinds.OFFER, serve, ended)

    def _post(
        self,
        peer: SimProducer,
        kind: str,
        serve: Callable[[Callable[[Any], None]], None],
        ended: Callable[[Any], None],
    ) -> None:
        """Call a peer: `ended` with its answer, or None, once, if this process lives so long."""
        wires, life = self._wires, self.life
        is_open = [True]

        def end(answer: Any) -> None:
            if is_open and life == self.life:
                is_open.clear()
                self.deliver(ended, answer)

        def reply(answer: Any) -> None:
            wires.send(
                peer.name, self.name, kinds.OFFER_ANSWER, partial(end, answer), partial(end, None)
            )

        def come() -> None:
            peer.reached(partial(serve, reply), partial(wires.lose, partial(end, None)))

        wires.send(self.name, peer.name, kind, come, partial(end, None))
        if not wires.reliable:
            self.world.at(self.world.now_s + kinds.TIMEOUT_S, end, None)
