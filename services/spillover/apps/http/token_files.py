"""The API tokens of a service, as its files say: read when it starts, and again while it runs. What
cannot be read then leaves the last good ones in place, and is told. How files are read is in
`inputs.api_tokens`, who asks with which one in `apps.http.access`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from spillover.apps.http.access import Access, ApiTokens
from spillover.inputs.api_tokens import parse_api_tokens, read_api_tokens
from spillover.live.process.logs import Message
from spillover.model.access import ApiToken
from spillover.model.errors import InputError

LOOK_S = 10.0

_log = logging.getLogger(__name__)


class TokenFiles:
    """All that `paths` hold together; `on_change` is told when that has changed. Raises
    InputError."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._texts = self._read()
        self.tokens: tuple[ApiToken, ...] = parse_api_tokens(self._texts)
        self.access = Access(ApiTokens(self.tokens))
        self._told = ""
        """The last complaint about the files."""
        self._asked = asyncio.Event()
        self.on_change: Callable[[Sequence[ApiToken]], None] | None = None

    def begin_watching(self, fail: Callable[[BaseException], None]) -> asyncio.Task[None]:
        """Look for changes until the task is cancelled. If that breaks, `fail` is told: unnoticed,
        who is revoked would stay."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                fail(error)

        watching = asyncio.create_task(self.watch(), name="API tokens")
        watching.add_done_callback(ended)
        return watching

    async def watch(self) -> None:
        """Look for changes until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._asked.wait()
                    self._told = ""
            self._asked.clear()
            await self.look()

    def look_now(self) -> None:
        """Have `watch` look at once, and say again what is wrong."""
        self._asked.set()

    async def look(self) -> None:
        """Take what the files say now, if that is different and right."""
        try:
            # In a thread: reading a long file takes longer than the loop may stand still.
            changed = await asyncio.to_thread(self._changed)
        except (InputError, RuntimeError) as error:  # the second: no thread is to be had
            if str(error) != self._told:
                self._told = str(error)
                words = "API tokens stay as they were: they cannot be read"
                _log.warning(Message(words, reason=self._told))
            return
        self._told = ""
        if changed is not None:
            self._texts, self.tokens = changed
            self.access.go_by(ApiTokens(self.tokens))
            if self.on_change is not None:
                self.on_change(self.tokens)
            _log.info(Message("API tokens have changed", api_tokens=len(self.tokens)))

    def _changed(self) -> tuple[dict[str, str], tuple[ApiToken, ...]] | None:
        texts = self._read()
        return None if texts == self._texts else (texts, parse_api_tokens(texts))

    def _read(self) -> dict[str, str]:
        return {path: read_api_tokens(path) for path in self._paths}
