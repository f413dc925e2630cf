"""The messages between producers, as JSON by msgspec, and their paths. Unknown fields are ignored,
and missing ones have the defaults given here."""

from __future__ import annotations

from typing import Annotated

import msgspec

from spillover.core.queue.events import Offer, Probe
from spillover.model.errors import UNREADABLE

PROBE_PATH = "/peer/v1/queue/probe"
OFFER_PATH = "/peer/v1/queue/offer"

ID_LENGTH_MAX = 63
PRODUCERS_MAX = 1000
"""The most producers in a consumer's access probabilities, and on a probe's way."""

Id = Annotated[
    str,
    msgspec.Meta(pattern=rf"\A[A-Za-z0-9._-]{{1,{ID_LENGTH_MAX}}}\Z", max_length=ID_LENGTH_MAX),
]
Grant = Annotated[str, msgspec.Meta(pattern=r"\A[ -~]{1,200}\Z", max_length=200)]
"""The name of a peer's grant: it goes into a head, and does not end a line there."""

Name = Annotated[
    str, msgspec.Meta(pattern=r"\A[^\x00-\x1f\x7f-\x9f\u2028\u2029]+\Z", max_length=200)
]
"""The name of a probe or a consumer, as its client gives it: no control character, which ends
lines."""

Hops = Annotated[int, msgspec.Meta(ge=1, le=2 * PRODUCERS_MAX)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Access = Annotated[dict[Id, Share], msgspec.Meta(max_length=PRODUCERS_MAX)]
Way = Annotated[tuple[Id, ...], msgspec.Meta(max_length=2 * PRODUCERS_MAX)]
LeftMs = Annotated[float, msgspec.Meta(ge=0.0, le=86_400_000.0)]


class MalformedMessage(ValueError):
    """These bytes are not such a message."""


class ProbeBody(msgspec.Struct, omit_defaults=True):
    """A probe that goes on to another producer: `core.queue.events.Probe`."""

    id: Name
    first: Id
    consumer: Name
    hop: Hops
    max_hops: Hops
    access: Access
    left_ms: LeftMs
    avoid_visited: bool = False
    visited: Way = ()


class OfferBody(msgspec.Struct, omit_defaults=True):
    """An object for a take: `core.queue.events.Offer`."""

    probe_id: Name
    producer: Id
    grant: Grant
    probes: Hops


class TakenBody(msgspec.Struct):
    """The answer to an offer."""

    taken: bool


_encode = msgspec.json.Encoder().encode
_probe = msgspec.json.Decoder(ProbeBody)
_offer = msgspec.json.Decoder(OfferBody)
_taken = msgspec.json.Decoder(TakenBody)


def encode_probe(probe: Probe) -> bytes:
    """Returns what `decode_probe` reads."""
    return _encode(
        ProbeBody(
            id=probe.id,
            first=probe.first,
            consumer=probe.consumer,
            hop=probe.hop,
            max_hops=probe.max_hops,
            access=dict(probe.access),
            left_ms=probe.left_s * 1e3,
            avoid_visited=probe.avoid_visited,
            visited=probe.visited,
        )
    )


def decode_probe(body: bytes) -> Probe:
    """Raises MalformedMessage."""
    try:
        told = _probe.decode(body)
    except UNREADABLE as error:
        raise MalformedMessage(str(error)) from error
    return Probe(
        id=told.id,
        first=told.first,
        consumer=told.consumer,
        hop=told.hop,
        max_hops=told.max_hops,
        access=told.access,
        avoid_visited=told.avoid_visited,
        visited=told.visited,
        left_s=told.left_ms / 1e3,
    )


def encode_offer(offer: Offer) -> bytes:
    """Returns what `decode_offer` reads."""
    return _encode(OfferBody(offer.probe_id, offer.producer, offer.grant, offer.probes))


def decode_offer(body: bytes) -> Offer:
    """Raises MalformedMessage."""
    try:
        told = _offer.decode(body)
    except UNREADABLE as error:
        raise MalformedMessage(str(error)) from error
    return Offer(told.probe_id, told.producer, told.grant, told.probes)


def encode_taken(taken: bool) -> bytes:  # noqa: FBT001 - all that it says
    """Returns what `decode_taken` reads."""
    return _encode(TakenBody(taken))


def decode_taken(body: bytes) -> bool:
    """Raises MalformedMessage."""
    try:
        return _taken.decode(body).taken
    except UNREADABLE as error:
        raise MalformedMessage(str(error)) from error
