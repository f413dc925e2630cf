"""The messages between clients and producers over HTTP, and the meaning of answers
(docs/queue.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from spillover.core.queue.consumer import ConsumerSettings
from spillover.core.queue.consumer_events import Take
from spillover.live.http1.client import HttpClient, Response
from spillover.live.http1.trust import Trust
from spillover.model.errors import UNREADABLE, PeerError, QueueFull, Refused, Rejected
from spillover.model.topology import CLUSTER_ID

CONNECT_S = 2.0

IDLE_S_MAX = 4.0
"""Less than servers keep idle connections (5 s is usual), so that none closes as it is used."""

OBJECT_LIMIT_BYTES = 1 << 30
"""Producers bound their objects; this is for what is none."""

CONTENT_TYPE = "application/octet-stream"

SAID_LENGTH_MAX = 300
"""The most characters of a producer's reason for not taking a call."""

NO_FAULT_STATUSES = frozenset({408, 409, 429})
"""Statuses that begin with 4 and blame nobody: another time the same call may be taken."""

COUNT_DIGITS_MAX = 12

VISIBILITY_S_MAX = 366 * 86_400.0
"""The longest visibility of any producer: an answer with a longer one is none of a producer."""

_GRANT = re.compile(r"[ -~]{1,200}")
_OBJECT = re.compile(r"[A-Za-z0-9._-]{1,200}")

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """An object as it came, and the grant that goes with it."""

    body: bytes
    content_type: str
    id: str
    grant: str
    producer: str
    deliveries: int
    """How often it has been given to anybody, this time included."""
    probes: int
    """How many producers were asked for it."""
    visibility_s: float


@dataclass(frozen=True, slots=True)
class Address:
    """Where an object is that was found elsewhere."""

    producer: str
    base_url: str
    grant: str
    probes: int


class _TakeBody(msgspec.Struct):
    consumer: str
    probe_id: str
    max_hops: int
    access: dict[str, float]
    avoid_visited: bool


class _NackBody(msgspec.Struct):
    delay_ms: float


class _ProblemBody(msgspec.Struct):
    reason: str = ""
    detail: str = ""


class _CreatedBody(msgspec.Struct):
    id: str


_encode = msgspec.json.Encoder().encode
_problem = msgspec.json.Decoder(_ProblemBody)
_created = msgspec.json.Decoder(_CreatedBody)


class NoProducer(PeerError):
    """The server there does not answer as producers do."""


def client_of(url: str, trust: Trust, headers: Headers = ()) -> HttpClient:
    """Returns what calls this producer, with these headers, and believes whom `trust` says. Raises
    InputError for what is no base URL."""
    return HttpClient(
        url,
        headers=headers,
        tls=trust.of(url),
        connect_timeout_s=CONNECT_S,
        idle_s_max=IDLE_S_MAX,
        body_limit_bytes=OBJECT_LIMIT_BYTES,
        user_timeout_s=2 * CONNECT_S,
    )


def encode_take(command: Take, settings: ConsumerSettings) -> bytes:
    """Returns the body of POST /take."""
    return _encode(
        _TakeBody(
            consumer=settings.name,
            probe_id=command.take,
            max_hops=settings.max_hops,
            access=dict(command.access),
            avoid_visited=settings.avoid_visited,
        )
    )


DEADLINE_S_MAX = 604_800.0
"""A week, as for requests."""


def deadline(wait_s: float) -> tuple[bytes, bytes]:
    """Returns the header that says how long a call may wait."""
    return (b"spillover-deadline-ms", b"%.3f" % (wait_s * 1e3))


def object_path(grant: str) -> str:
    """Returns where an object is fetched."""
    return f"/objects/{quote(grant, safe='')}"


def grant_path(grant: str, what: str) -> str:
    """Returns where `ack`, `nack` and `extend` go."""
    return f"/grants/{quote(grant, safe='')}/{what}"


def encode_nack(rest_s: float | None) -> bytes:
    """Returns the body of POST /grants/{grant}/nack."""
    return b"" if rest_s is None else _encode(_NackBody(rest_s * 1e3))


def read_object(response: Response, probes: int | None = None) -> Received:
    """Returns the object of a 200. Raises NoProducer for one without a grant."""
    try:
        headers = {name: value.decode("ascii") for name, value in response.headers.items()}
        return Received(
            body=response.body,
            content_type=headers.get(b"content-type", CONTENT_TYPE),
            id=_fit(_OBJECT, headers[b"spillover-object"]),
            grant=_fit(_GRANT, headers[b"spillover-grant"]),
            producer=_fit(CLUSTER_ID, headers[b"spillover-producer"]),
            deliveries=_count(headers[b"spillover-deliveries"]),
            probes=_count(headers[b"spillover-probes"]) if probes is None else probes,
            visibility_s=_visibility_s(headers[b"spillover-visibility-ms"]),
        )
    except (KeyError, ValueError) as error:
        raise NoProducer(f"expected an object with its grant, got none: {error}") from None


def read_address(response: Response) -> Address:
    """Returns what a 303 says. Raises NoProducer for one that says nothing."""
    try:
        headers = {name: value.decode("ascii") for name, value in response.headers.items()}
        base_url, _, _ = headers[b"location"].rpartition("/objects/")
        return Address(
            producer=_fit(CLUSTER_ID, headers[b"spillover-producer"]),
            base_url=base_url,
            grant=_fit(_GRANT, headers[b"spillover-grant"]),
            probes=_count(headers[b"spillover-probes"]),
        )
    except (KeyError, ValueError) as error:
        raise NoProducer(f"expected the address of an object, got none: {error}") from None


def _fit(pattern: re.Pattern[str], text: str) -> str:
    """Raises ValueError for what is no such name: it goes into paths and logs."""
    if pattern.fullmatch(text) is None:
        raise ValueError(f"unfit {text[:80]!r}")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > COUNT_DIGITS_MAX:
        raise ValueError(f"unfit {text[:80]!r}")
    return int(text)


def _visibility_s(text: str) -> float:
    visibility_s = float(text) / 1e3
    if not 0.0 < visibility_s <= VISIBILITY_S_MAX:
        raise ValueError(f"unfit {text[:80]!r}")
    return visibility_s


def read_created(response: Response) -> str:
    """Returns the id of an object that was taken in. Raises NoProducer."""
    try:
        return _created.decode(response.body).id
    except UNREADABLE:
        raise NoProducer("expected the id of an object, got another body") from None


def is_rejected(response: Response) -> bool:
    """Returns whether the same call would never be taken."""
    return 400 <= response.status <= 499 and response.status not in NO_FAULT_STATUSES


def error_of(url: str, response: Response) -> PeerError | None:
    """Returns why a call was not taken; None where the answer does not say so for sure."""
    problem = _problem_of(response)
    said = " ".join(f"{problem.reason} {problem.detail}".split())[:SAID_LENGTH_MAX]
    message = f"{url}: status {response.status} {said or 'without a reason'}"
    if is_rejected(response):
        return Rejected(message, response.status, problem.reason)
    if response.status == 429:
        return QueueFull(message, problem.reason, _retry_after_s(response))
    if response.status in (409, 503):
        return Refused(message, problem.reason, _retry_after_s(response))
    return None


def is_unknown_grant(response: Response) -> bool:
    """Returns whether the producer says that the grant has ended."""
    return response.status == 404 and _problem_of(response).reason == "unknown_grant"


def _problem_of(response: Response) -> _ProblemBody:
    try:
        return _problem.decode(response.body)
    except UNREADABLE:
        return _ProblemBody()


def _retry_after_s(response: Response) -> float | None:
    told = response.headers.get(b"retry-after", b"")
    return float(told) if told.isdigit() and len(told) < 9 else None
