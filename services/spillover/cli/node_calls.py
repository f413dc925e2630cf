"""What operators' commands say to a node over HTTP, with one line where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Self

from spillover.live.http.client import HttpClient
from spillover.model.errors import NotDelivered, PeerError, RunError
from spillover_loadgen.api_token import Headers as Headers  # noqa: PLC0414 - of those who call

ANSWER_WITHIN_S = 3.0
"""For any one call: a node answers in milliseconds, about the federation in a second."""


class NodeCalls:
    """Calls of the node at `url`, to be used with `async with`. What cannot be asked is a RunError
    that says so; so is an answer that no node gives. `headers` go with each."""

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
        """Returns the object of a 2xx answer for which `is_answer` holds. A problem that the node
        tells is a Refused."""
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
            raise Refused(told["reason"], str(told.get("detail", "")))
        if not 200 <= response.status < 300 or not is_answer(told):
            raise self._no_node()
        return told

    async def state(self) -> dict[str, Any]:
        return await self.call("GET", "/state", is_state)

    def _no_node(self, error: Exception | None = None) -> RunError:
        line = f"no Spillover node answers at {self.url}"
        if isinstance(error, NotDelivered) and self.url.startswith("https:"):
            # Whom to believe is what mostly goes wrong, and can be put right here.
            line += f": {str(error).removeprefix(f'{self.url}: ')}"
        return RunError(line)


class Refused(RunError):
    """The node answers, with a problem."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}")


def is_state(told: dict[str, Any]) -> bool:
    """Returns whether this may be what `/state` says."""
    neighbors = told.get("neighbors")
    return (
        all(isinstance(told.get(name), int) for name in ("servers", "busy", "queue_length"))
        and isinstance(told.get("cluster"), str)
        and isinstance(told.get("ledger"), dict)
        and isinstance(neighbors, list)
        and all(isinstance(neighbor, dict) and "id" in neighbor for neighbor in neighbors)
    )
