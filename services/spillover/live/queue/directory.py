"""Which producers a queue has, and where: any of them that can be reached knows the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from spillover.live.http1.base_url import BaseUrl
from spillover.live.http1.client import Response
from spillover.live.http1.trust import Trust
from spillover.live.queue.client_wire import Headers, client_of, error_of
from spillover.live.queue.wire import PRODUCERS_MAX, Id
from spillover.model.addresses import may_be_led_to
from spillover.model.arguments import wrong
from spillover.model.errors import UNREADABLE, InputError, PeerError, Unreachable, blamed_on

ANSWER_S = 5.0
REASONS_MAX = 3

NOT_LET_IN = (401, 403)


class _StateBody(msgspec.Struct):
    """The fields of a producer's GET /state that are used here."""

    producer: Id
    producers: Annotated[dict[Id, str], msgspec.Meta(max_length=PRODUCERS_MAX)]


_decode = msgspec.json.Decoder(_StateBody).decode


def checked_urls(urls: object, trust: Trust) -> tuple[str, ...]:
    """Returns the base URLs that a client was told. Raises InputError for what is none, and where
    there is nobody to `trust`."""
    if isinstance(urls, str | bytes) or not isinstance(urls, Iterable):
        urls = (urls,)
    found = tuple(urls)
    if not found:
        raise InputError("urls", "", "expected the URL of at least one producer, got none")
    return tuple(_checked_url(url, trust) for url in found)


def _checked_url(url: object, trust: Trust) -> str:
    if not isinstance(url, str):
        raise wrong("urls", "a URL", url)
    with blamed_on("urls"):
        base = BaseUrl(url).url
    client_of(base, trust)
    return base


async def find_producers(
    urls: Sequence[str], trust: Trust, headers: Headers = ()
) -> dict[str, str]:
    """Returns the base URLs of all producers, by id. One that was told holds for the producer that
    answers there, whatever that calls itself to others, and nobody is led from https to http.
    `headers` go with what is asked.

    Raises Unreachable if none answers, Rejected if one lets nobody in that shows so much, and
    InputError if one that answers is no producer.
    """
    answers = await asyncio.gather(*(_ask(url, trust, headers) for url in urls))
    found: dict[str, str] = {}
    for state in answers:
        if isinstance(state, _StateBody):
            told = state.producers.items()
            found.update((name, url) for name, url in told if _may_be_asked(url, urls, trust))
    for url, state in zip(urls, answers, strict=True):
        if isinstance(state, _StateBody):
            found[state.producer] = url.rstrip("/")
    if not found:
        raise none_reached([one for one in answers if isinstance(one, PeerError)])
    return found


def none_reached(errors: Sequence[PeerError]) -> Unreachable:
    """Returns the error that says why, of some of them: there may be hundreds."""
    reasons = "; ".join(str(one) for one in errors[:REASONS_MAX])
    more = len(errors) - REASONS_MAX
    others = f"; and {more} more" if more > 0 else ""
    return Unreachable(f"none of the producers can be reached: {reasons}{others}")


def _may_be_asked(url: str, given: Sequence[str], trust: Trust) -> bool:
    """Returns whether who was given these urls may ask there, which another producer says."""
    try:
        client_of(url, trust)
    except InputError:
        return False
    return may_be_led_to(url, given)


async def _ask(url: str, trust: Trust, headers: Headers) -> _StateBody | PeerError:
    client = client_of(url, trust, headers)
    try:
        response = await client.request("GET", "/state", timeout_s=ANSWER_S)
    except PeerError as error:
        return error
    finally:
        await client.close()
    if response.status in NOT_LET_IN and (refused := error_of(url, response)) is not None:
        raise refused
    return _state_of(url, response)


def _state_of(url: str, response: Response) -> _StateBody:
    try:
        return _decode(response.body)
    except UNREADABLE:
        raise InputError(url, "", "expected a producer of a queue, found none there") from None
