"""Calls of operators' commands to a node over HTTP: their options, and the one line that a user
reads where no node answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from typing import Any, Self

from spillover.cli.node_answers import is_node
from spillover.cli.parsing import node_url
from spillover.commandline.api_token import Headers as Headers  # noqa: PLC0414 - of those who call
from spillover.commandline.api_token import add_token_file, token_headers
from spillover.commandline.parsing import add_json
from spillover.commandline.trusting import add_ca_file
from spillover.live.http1.client import HttpClient
from spillover.model.errors import NotDelivered, PeerError, RunError

ANSWER_WITHIN_S = 3.0
"""The limit of each call: a node answers in milliseconds, about the federation in a second."""


def add_call_options(parser: argparse.ArgumentParser, called: str, json_help: str) -> None:
    """Declare the URL of whoever is `called`, and how to call there and to show the answer."""
    parser.add_argument("url", type=node_url, metavar="URL", help=called)
    add_json(parser, json_help)
    add_ca_file(parser)
    add_token_file(parser)


def call_once(
    options: argparse.Namespace, method: str, path: str, is_answer: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Returns the answer to one call, made as those options say."""

    async def call() -> dict[str, Any]:
        async with calls_of(options) as node:
            return await node.call(method, path, is_answer)

    return asyncio.run(call())


def calls_of(options: argparse.Namespace) -> NodeCalls:
    """Returns the calls of the node that those options name."""
    return NodeCalls(options.url, token_headers(options))


class NodeCalls:
    """Calls of the node at `url`, to be used with `async with`. They raise RunError where nobody
    answers, or somebody who is no node. `headers` go with each."""

    def __init__(self, url: str, headers: Headers = ()) -> None:
        self.url = url
        self._client = HttpClient(url, headers=headers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def call(
        self,
        method: str,
        path: str,
        is_answer: Callable[[dict[str, Any]], bool],
        body: bytes = b"",
    ) -> dict[str, Any]:
        """Returns the object of a 2xx answer for which `is_answer` holds. Raises ProblemAnswered
        where the node answers with a problem."""
        try:
            response = await self._client.request(
                method, path, body=body, timeout_s=ANSWER_WITHIN_S
            )
            told = json.loads(response.body)
        except (PeerError, ValueError, RecursionError) as error:
            raise self._no_node(error) from None
        if not isinstance(told, dict):
            raise self._no_node()
        if response.status >= 400 and isinstance(told.get("reason"), str):
            raise ProblemAnswered(told["reason"], str(told.get("detail", "")))
        if not 200 <= response.status < 300 or not is_answer(told):
            raise self._no_node()
        return told

    async def state(self) -> dict[str, Any]:
        return await self.call("GET", "/state", is_node)

    def _no_node(self, error: Exception | None = None) -> RunError:
        line = f"no Spillover node answers at {self.url}"
        if isinstance(error, NotDelivered) and self.url.startswith("https:"):
            # Whom to believe is what mostly goes wrong, and can be put right here.
            line += f": {str(error).removeprefix(f'{self.url}: ')}"
        return RunError(line)


class ProblemAnswered(RunError):
    """The node has answered with a problem."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}")
