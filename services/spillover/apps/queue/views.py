"""What the routes of a producer show, as pydantic models: they describe it in the OpenAPI."""

from __future__ import annotations

from pydantic import BaseModel

from spillover import __version__
from spillover.live.queue.shell import QueueShell

DEAD_SHOWN_MAX = 1000


class DeadObject(BaseModel):
    """An object that was granted too often in vain."""

    number: int
    content_type: str
    size_bytes: int
    deliveries: int


class QueueState(BaseModel):
    """One producer as it is now. produced = acknowledged + granted + buffered + dead."""

    producer: str
    epoch: int
    version: str
    durable: bool
    """Whether objects outlive the process."""
    buffers: int
    buffered: int
    granted: int
    dead: int
    produced: int
    acknowledged: int
    returned: int
    waiting: int
    """Producers that wait for a place."""
    takes: int
    """Consumers' calls that are held here."""
    parked: int
    """Probes that wait here for an object."""
    probes: dict[str, int]
    memory_bytes: int
    draining: bool
    drained: bool
    peers: dict[str, str]
    producers: dict[str, str]
    """Where consumers reach each producer, this one among them."""
    visibility_ms: float


def queue_state(shell: QueueShell) -> QueueState:
    """Returns the producer at this instant."""
    machine, objects = shell.machine, shell.machine.objects
    return QueueState(
        producer=shell.settings.id,
        epoch=shell.epoch,
        version=__version__,
        durable=shell.bodies.is_durable,
        buffers=shell.settings.buffers,
        buffered=objects.buffered,
        granted=len(objects.granted),
        dead=len(objects.dead),
        produced=objects.produced,
        acknowledged=objects.acknowledged,
        returned=machine.returned,
        waiting=machine.waiting,
        takes=len(machine.takes),
        parked=machine.parked,
        probes=machine.probes,
        memory_bytes=shell.bodies.memory_bytes,
        draining=machine.draining,
        drained=machine.drained,
        peers=shell.peers,
        producers=shell.public_urls,
        visibility_ms=shell.settings.visibility_s * 1e3,
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
