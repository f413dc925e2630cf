"""The lines of a report stream, which are most of what an idle node says: reports, signs of life,
and questions for work. They are JSON by msgspec, as in `wire`."""

from __future__ import annotations

from struct import Struct
from typing import Annotated, NamedTuple

import msgspec

from spillover.live.overflow.wire import (
    LoadBody,
    MalformedMessage,
    decoded,
    load_of,
)
from spillover.model.affinity import PLACES_MAX, PlaceLoad
from spillover.model.configuration import STAMP_LENGTH_MAX
from spillover.model.load import GroupLoad, LoadNow, LoadReport
from spillover.model.ranges import (
    AMOUNT_MAX,
    WORK_MAX,
    Ahead,
    Amount,
    Cluster,
    MaybeCluster,
    Share,
    Whole,
)
from spillover.model.request import TYPE_LENGTH_MAX, is_name
from spillover.model.type_groups import GROUPS_MAX

NEIGHBORS_TOLD_MAX = 1000

HOPS_TOLD_MAX = 1000
"""The most hops that a line may state: far more than any request may take."""

HEARTBEAT = b"{}\n"

_PLACE = Struct("<4f")
"""The load of a place in 16 bytes; its fields are those of `model.affinity.PlaceLoad`. There may be
many places, and each report states all of them. Seven digits of each number are enough."""
_PLACE_MOST = PlaceLoad(WORK_MAX, 1.0, WORK_MAX, WORK_MAX)

BoundedStamp = Annotated[str, msgspec.Meta(max_length=STAMP_LENGTH_MAX)]
Hops = Annotated[int, msgspec.Meta(ge=0, le=HOPS_TOLD_MAX)]
BoundedClusters = Annotated[tuple[Cluster, ...], msgspec.Meta(max_length=NEIGHBORS_TOLD_MAX)]
BoundedPlaces = Annotated[bytes, msgspec.Meta(max_length=PLACES_MAX * _PLACE.size)]
GroupName = Annotated[str, msgspec.Meta(max_length=TYPE_LENGTH_MAX)]


class GroupBody(msgspec.Struct, array_like=True, frozen=True):
    """The part of a report on one group of types: `model.load.GroupLoad`."""

    id: str
    accept_probability: Share
    neighborhood_accept_probability: Share
    servers: Whole
    accepting: bool
    ahead: Ahead
    load: Amount
    departure_ms: Amount
    residual: Amount


BoundedGroups = Annotated[list[GroupBody], msgspec.Meta(max_length=GROUPS_MAX)]


class ReportLine(msgspec.Struct, omit_defaults=True):
    """A load report. A line without fields is a mere sign of life."""

    epoch: Whole
    sequence: Whole
    accept_probability: Share
    neighborhood_accept_probability: Share
    queue_length: Whole
    servers: Whole
    accepting: bool
    hears: BoundedClusters = ()
    degraded: bool = False
    failed_share: Share = 0.0
    ahead: Ahead | None = None
    load: Amount = 0.0
    departure_ms: Amount = 0.0
    residual: Amount = 1.0
    groups: BoundedGroups = []
    configuration: BoundedStamp = ""
    clients: Whole | None = None
    passes: bool = False
    least_failed: Share | None = None
    next_failed: Share | None = None
    relay_hops: Hops = 0
    relay_by: MaybeCluster = ""
    invites: bool = False
    places: BoundedPlaces = b""


class AskLine(msgspec.Struct, omit_defaults=True):
    """A line for one neighbor alone, on the stream of reports: a question for work, or the answer
    to one, that there is no work.

    It has the load of the node that sends it. Only neighbors whose reports state `ahead` get it.
    Where there are several groups of types, all of it is about one of them.
    """

    ask: LoadBody | None = None
    no_work: LoadBody | None = None
    group: GroupName = ""


class Question(NamedTuple):
    """The neighbor asks for work of this group of types."""

    load: LoadNow
    group: str = ""


class NothingToDo(NamedTuple):
    """The neighbor, which was asked for work, has none for this cluster."""

    load: LoadNow
    group: str = ""


_encode = msgspec.json.Encoder().encode
_decode_report = msgspec.json.Decoder(ReportLine).decode
_decode_ask = msgspec.json.Decoder(AskLine).decode

_ASKS = (b'{"ask"', b'{"no_work"')


def encode_ask(load: LoadNow, group: str = "") -> bytes:
    """Returns the line that asks for work, its end included."""
    return _encode(AskLine(ask=LoadBody(*load), group=group)) + b"\n"


def encode_no_work(load: LoadNow, group: str = "") -> bytes:
    """Returns the line that says that there is no work, its end included."""
    return _encode(AskLine(no_work=LoadBody(*load), group=group)) + b"\n"


def encode_report(report: LoadReport, configuration: str = "", clients: int | None = None) -> bytes:
    """Returns the line of a report, its end included. `configuration` is the stamp of the
    configuration that this node goes by; `clients` is how many have a session here."""
    line = ReportLine(
        epoch=report.epoch,
        sequence=report.sequence,
        accept_probability=report.accept_probability,
        neighborhood_accept_probability=report.neighborhood_accept_probability,
        queue_length=report.queue_length,
        servers=report.servers,
        accepting=report.accepting,
        hears=report.hears,
        degraded=report.degraded,
        failed_share=report.failed_share,
        ahead=report.ahead,
        load=min(report.load, AMOUNT_MAX),
        departure_ms=min(report.departure_s * 1e3, AMOUNT_MAX),
        residual=min(report.residual, AMOUNT_MAX),
        configuration=configuration,
        clients=clients,
        passes=report.passes,
        least_failed=report.least_failed,
        next_failed=report.next_failed,
        relay_hops=report.relay_hops,
        relay_by=report.relay_by,
        invites=report.invites,
    )
    if report.groups:
        line.groups = [_body_of(group) for group in report.groups]
    if report.places:
        line.places = b"".join([_PLACE.pack(*place) for place in report.places])
    return _encode(line) + b"\n"


def _body_of(group: GroupLoad) -> GroupBody:
    return GroupBody(
        group.id,
        group.accept_probability,
        group.neighborhood_accept_probability,
        group.servers,
        group.accepting,
        group.ahead,
        min(group.load, AMOUNT_MAX),
        min(group.departure_s * 1e3, AMOUNT_MAX),
        min(group.residual, AMOUNT_MAX),
    )


def decode_line(line: bytes) -> LoadReport | Question | NothingToDo | None:
    """Returns what a line says; None for a mere sign of life. Raises MalformedMessage."""
    if line == HEARTBEAT[:-1]:
        return None
    if line.startswith(_ASKS):
        message = decoded(_decode_ask, line)
        if message.ask is not None:
            return Question(load_of(message.ask), message.group)
        if message.no_work is not None:
            return NothingToDo(load_of(message.no_work), message.group)
    return _report_of(decoded(_decode_report, line))


def _report_of(message: ReportLine) -> LoadReport:
    return LoadReport(
        epoch=message.epoch,
        sequence=message.sequence,
        accept_probability=message.accept_probability,
        neighborhood_accept_probability=message.neighborhood_accept_probability,
        queue_length=message.queue_length,
        servers=message.servers,
        accepting=message.accepting,
        hears=message.hears,
        degraded=message.degraded,
        failed_share=message.failed_share,
        ahead=message.ahead,
        load=message.load,
        departure_s=message.departure_ms / 1e3,
        residual=message.residual,
        groups=tuple(map(_group_of, message.groups)),
        configuration=message.configuration,
        clients=message.clients,
        passes=message.passes,
        least_failed=message.least_failed,
        next_failed=message.next_failed,
        relay_hops=message.relay_hops,
        relay_by=message.relay_by,
        invites=message.invites,
        places=_places_of(message.places),
    )


def _places_of(told: bytes) -> tuple[PlaceLoad, ...]:
    if len(told) % _PLACE.size:
        raise MalformedMessage(f"places: expected {_PLACE.size} bytes for each")
    places = tuple([PlaceLoad(*fields) for fields in _PLACE.iter_unpack(told)])
    for place in places:
        # This is written so that a NaN is beyond its range, too.
        if not all(0.0 <= value <= most for value, most in zip(place, _PLACE_MOST, strict=True)):
            raise MalformedMessage("places: expected numbers from 0 on, and shares up to 1")
    return places


def _group_of(group: GroupBody) -> GroupLoad:
    if not is_name(group.id, TYPE_LENGTH_MAX):
        raise MalformedMessage(f"groups: expected ids of 1 to {TYPE_LENGTH_MAX} characters")
    return GroupLoad(
        group.id,
        group.accept_probability,
        group.neighborhood_accept_probability,
        group.servers,
        group.accepting,
        group.ahead,
        group.load,
        group.departure_ms / 1e3,
        group.residual,
    )
