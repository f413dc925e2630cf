"""The targets of a run: as they are named on the command line, and whether they are who they are
called. A mistake here would be measured as a strange federation, not seen as one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping

from spillover.commandline.api_token import Headers
from spillover.commandline.option_types import did_you_mean_url
from spillover.live.http1.client import HttpClient
from spillover.model.errors import UNREADABLE, InputError, PeerError
from spillover.model.ids import ClusterId

OPTION = "--target"
ANSWER_WITHIN_S = 5.0
THEM = {"cluster": "Spillover node", "producer": "producer of a queue"}
FORBIDDEN, UNAUTHENTICATED = "forbidden", "unauthenticated"
"""What nodes with API tokens say: this one makes requests and may not look; none is known there."""

BODY_LIMIT_BYTES = 4 * 1024 * 1024


def target(text: str) -> tuple[ClusterId, str]:
    """Returns the cluster and the URL of an argument CLUSTER=URL."""
    return _named_url(text, "CLUSTER=URL")


def producer(text: str) -> tuple[ClusterId, str]:
    """Returns the producer and the URL of an argument PRODUCER=URL."""
    return _named_url(text, "PRODUCER=URL")


def node_url(text: str) -> str:
    """Returns the URL of a node."""
    try:
        HttpClient(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(error.expected + did_you_mean_url(text)) from None
    return text


def _named_url(text: str, form: str) -> tuple[ClusterId, str]:
    cluster, _, url = text.partition("=")
    if not cluster or not url:
        raise argparse.ArgumentTypeError(f"expected {form}, got {text!r}")
    return ClusterId(cluster), node_url(url)


async def check_targets(
    targets: Mapping[ClusterId, str], kind: str = "cluster", *, headers: Headers = ()
) -> None:
    """Ask each who it is. Raises InputError for the first, in their order, that does not answer, or
    is not the cluster, or the `producer`, that it is called. `headers` go along;
    whoever makes requests and may not look is let through."""
    asked = (_check(kind, name, url, headers) for name, url in targets.items())
    for problem in await asyncio.gather(*asked):
        if problem is not None:
            raise InputError(OPTION, "", problem)


async def _check(kind: str, name: ClusterId, url: str, headers: Headers) -> str | None:
    """What is wrong with it."""
    expected = f"expected {kind} {name} at {url}"
    client = HttpClient(
        url,
        headers=headers,
        body_limit_bytes=BODY_LIMIT_BYTES,
        connect_timeout_s=ANSWER_WITHIN_S,
    )
    try:
        response = await client.request("GET", "/state", timeout_s=ANSWER_WITHIN_S)
        told = json.loads(response.body)
    except PeerError as error:
        return f"{expected}, got no answer: {str(error).removeprefix(f'{url}: ')}"
    except UNREADABLE:
        told = None
    finally:
        await client.close()
    if isinstance(told, dict) and told.get("reason") == FORBIDDEN and headers:
        return None
    if isinstance(told, dict) and told.get("reason") == UNAUTHENTICATED:
        return f"{expected}, got: {told.get('detail')} (--token-file)"
    found = told.get(kind) if isinstance(told, dict) else None
    if not isinstance(found, str):
        return f"{expected}, found no {THEM[kind]} there"
    return None if found == name else f"{expected}, found {kind} {found} there"
