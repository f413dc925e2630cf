"""The answers of a producer's routes, as pydantic models: they describe it in the OpenAPI."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import islice

from pydantic import BaseModel

from spillover import __version__
from spillover.core.queue.settings import ProducerSettings
from spillover.live.queue.history import OBJECT, PROBE
from spillover.live.queue.shell import QueueShell

DEAD_SHOWN_MAX = 1000

SHOWN_MAX = 20
"""The most takes, probes and grants that are shown: those that are there longest."""

_OBJECT_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class About:
    """The facts that a producer does not know of itself: where consumers reach it, and the largest
    object."""

    url: str
    object_limit_bytes: int


class Limits(BaseModel):
    """The limits of a producer."""

    buffers: int
    object_limit_bytes: int
    held_limit_bytes: int | None
    unacked: int
    dead: int
    deliveries: int
    waiting: int


class WaitingView(BaseModel):
    """A consumer's call that is held here, or a probe that waits here for an object."""

    probe_id: str
    consumer: str
    held_by: str
    waits_ms: float


class GrantView(BaseModel):
    """An object that was promised to somebody."""

    number: int
    deliveries: int
    size_bytes: int
    state: str
    """The state: offered, sending, or given."""
    ends_in_ms: float


class Told(BaseModel):
    """Something that happened."""

    at_ms: float
    """The time since the first that is remembered."""
    words: str


class Explanation(BaseModel):
    """The story of an object or a probe at one producer."""

    id: str
    kind: str
    producer: str
    state: str
    story: list[Told]


class DeadObject(BaseModel):
    """An object that was granted too often in vain."""

    number: int
    content_type: str
    size_bytes: int
    deliveries: int


class DeadPutBack(BaseModel):
    """How many dead objects were put back, and how many are dead still."""

    put_back: int
    dead: int


class QueueState(BaseModel):
    """One producer as it is now. produced = acknowledged + discarded + granted + buffered +
    dead."""

    producer: str
    url: str
    epoch: int
    version: str
    durable: bool
    """True where objects outlive the process."""
    visibility_ms: float
    probe_expiry_ms: float
    limits: Limits
    buffers: int
    buffered: int
    resting: int
    """The number of buffered objects that were given back as not handled, and are not to be given
    again yet."""
    granted: int
    dead: int
    produced: int
    acknowledged: int
    discarded: int
    """Dead objects that an operator wanted no more."""
    returned: int
    waiting: int
    """Producers that wait for a place."""
    takes: int
    """Consumers' calls that are held here."""
    parked: int
    """Probes that wait here for an object."""
    probes: dict[str, int]
    oldest_ms: dict[str, float]
    """How long those wait that wait longest: an object, an offer, a take, a probe."""
    waiting_takes: list[WaitingView]
    parked_probes: list[WaitingView]
    open_grants: list[GrantView]
    memory_bytes: int
    sent_bytes: int
    draining: bool
    drained: bool
    peers: dict[str, str]
    producers: dict[str, str]
    """Where consumers reach each producer, this one among them."""


def queue_state(shell: QueueShell, about: About) -> QueueState:
    """Returns the producer at this instant."""
    machine, objects, settings = shell.machine, shell.machine.objects, shell.settings
    return QueueState(
        producer=settings.id,
        url=about.url,
        epoch=shell.epoch,
        version=__version__,
        durable=shell.bodies.is_durable,
        visibility_ms=settings.visibility_s * 1e3,
        probe_expiry_ms=settings.probe_expiry_s * 1e3,
        limits=_limits(settings, about),
        buffers=settings.buffers,
        buffered=objects.buffered,
        resting=len(objects.resting),
        granted=len(objects.granted),
        dead=len(objects.dead),
        produced=objects.produced,
        acknowledged=objects.acknowledged,
        discarded=objects.discarded,
        returned=machine.returned,
        waiting=machine.waiting,
        takes=len(machine.takes),
        parked=len(machine.parked_probes),
        probes=machine.probes,
        oldest_ms={what: round(wait_s * 1e3, 1) for what, wait_s in shell.oldest_s().items()},
        waiting_takes=_waiting_takes(shell),
        parked_probes=_parked_probes(shell),
        open_grants=_open_grants(shell),
        memory_bytes=shell.bodies.memory_bytes,
        sent_bytes=shell.metrics.sent_bytes,
        draining=machine.draining,
        drained=machine.drained,
        peers=shell.peers,
        producers=shell.public_urls,
    )


def _limits(settings: ProducerSettings, about: About) -> Limits:
    held_bytes = settings.held_limit_bytes
    return Limits(
        buffers=settings.buffers,
        object_limit_bytes=about.object_limit_bytes,
        held_limit_bytes=None if math.isinf(held_bytes) else int(held_bytes),
        unacked=settings.unacked_limit,
        dead=settings.dead_limit,
        deliveries=settings.deliveries_max,
        waiting=settings.waiting_limit,
    )


def _waiting_takes(shell: QueueShell) -> list[WaitingView]:
    now_s, own = shell.now_s, shell.settings.id
    return [
        _waiting(take.id, take.consumer, own, now_s - take.begun_s)
        for take in islice(shell.machine.takes.by_id.values(), SHOWN_MAX)
    ]


def _parked_probes(shell: QueueShell) -> list[WaitingView]:
    now_s = shell.now_s
    return [
        _waiting(probe.id, probe.consumer, probe.first, now_s - until_s + probe.left_s)
        for probe, until_s, _ in islice(shell.machine.parked_probes.values(), SHOWN_MAX)
    ]


def _waiting(probe_id: str, consumer: str, held_by: str, wait_s: float) -> WaitingView:
    return WaitingView(
        probe_id=probe_id, consumer=consumer, held_by=held_by, waits_ms=round(wait_s * 1e3, 1)
    )


def _open_grants(shell: QueueShell) -> list[GrantView]:
    now_s, objects = shell.now_s, shell.machine.objects
    return [
        GrantView(
            number=grant.number,
            deliveries=objects.deliveries(grant.number),
            size_bytes=shell.bodies[grant.number].size_bytes,
            state="offered" if grant.is_offer else "given" if grant.is_sending else "pointed to",
            ends_in_ms=round((grant.until_s - now_s) * 1e3, 1),
        )
        for grant in islice(shell.machine.grants, SHOWN_MAX)
    ]


def explanation(shell: QueueShell, name: str) -> Explanation | None:
    """Returns the story of an object, by the id of its 201 or by its number, or of a probe; None if
    nothing is known of either."""
    own = shell.settings.id
    number = name.removeprefix(shell.object_prefix)
    if _OBJECT_NUMBER.fullmatch(number):
        story = shell.history.story(OBJECT, int(number))
        state = _object_state(shell, int(number))
        if story or state:
            told = _told(story)
            state = state or f"{_how_it_went(story)}: it is gone"
            name = shell.object_id(int(number))
            return Explanation(id=name, kind=OBJECT, producer=own, state=state, story=told)
    story = shell.history.story(PROBE, name)
    if not story:
        return None
    state = _probe_state(shell, name)
    return Explanation(id=name, kind=PROBE, producer=own, state=state, story=_told(story))


def _how_it_went(story: list[tuple[float, str]]) -> str:
    discarded = any(words.startswith("discarded") for _, words in story)
    return "discarded" if discarded else "acknowledged"


def _object_state(shell: QueueShell, number: int) -> str:
    """Returns the state of an object in words; nothing of one that is not here."""
    objects = shell.machine.objects
    times = objects.deliveries(number)
    in_vain = f", after {times} deliveries in vain" if times else ""
    if number in objects.dead:
        again = f"POST /dead/{number}/put-back buffers it again, DELETE /dead/{number} discards it"
        return f"dead{in_vain}: {again}"
    if number in objects.granted:
        grant = next(one for one in shell.machine.grants if one.number == number)
        left_s = grant.until_s - shell.now_s
        return f"granted: it returns in {left_s:.1f} s unless it is acknowledged or extended"
    if number in objects.resting:
        return f"buffered: rests before it is given again{in_vain}"
    if number in shell.bodies:
        ahead = sum(other < number for other in objects)
        return f"buffered: {ahead} before it{in_vain}"
    return ""


def _probe_state(shell: QueueShell, probe_id: str) -> str:
    machine, now_s = shell.machine, shell.now_s
    parked = [found for (_, one), found in machine.parked_probes.items() if one == probe_id]
    if parked:
        left_s = parked[0].until_s - now_s
        ahead = [one for _, one in machine.parked_probes].index(probe_id)
        return f"waits here: {ahead} before it, and it expires in {left_s:.1f} s"
    take = machine.takes.by_id.get(probe_id)
    if take is not None:
        return f"its call is held here for {now_s - take.begun_s:.1f} s; the probe is elsewhere"
    return "not here any more"


def _told(story: list[tuple[float, str]]) -> list[Told]:
    first_s = story[0][0] if story else 0.0
    return [Told(at_ms=round((at_s - first_s) * 1e3, 1), words=words) for at_s, words in story]


def dead_numbers(shell: QueueShell, content_type: str | None, first: int, last: int) -> list[int]:
    """Returns the dead ones of a content type (None: of any) with numbers from `first` to `last`,
    in their order."""
    return sorted(
        number
        for number in shell.machine.objects.dead
        if first <= number <= last
        and (content_type is None or shell.bodies[number].content_type == content_type)
    )


def dead_objects(shell: QueueShell) -> list[DeadObject]:
    """Returns the dead ones, longest dead first."""
    objects = shell.machine.objects
    found = []
    for number in list(objects.dead)[:DEAD_SHOWN_MAX]:
        body = shell.bodies[number]
        found.append(
            DeadObject(
                number=number,
                content_type=body.content_type,
                size_bytes=body.size_bytes,
                deliveries=objects.deliveries(number),
            )
        )
    return found
