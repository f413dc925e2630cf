"""What a home remembers of the requests that clients gave it: one entry for each name.

An entry is opened when a request is accepted and keeps its answer for a while after the end, so
that the same request under the same name gets the same answer and is not run again. What is not
known here any more is a new request.

Two windows bound what is kept. Answers to requests that came with a name, or that are fetched
later, stay `ttl_s`, at most `limit` of them and `limit_bytes` in all. The others have been given to
their clients, and stay only to be asked about: the last BRIEF_LIMIT of them, up to
BRIEF_LIMIT_BYTES.

Not here: who waits for an answer (the shell's business), and where a request is (the machine's).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from spillover.model.request import Answer, Request

BRIEF_LIMIT = 10_000
BRIEF_LIMIT_BYTES = 32 * 1024 * 1024
ENTRY_BYTES = 1024
"""What an entry is reckoned to take besides its result."""


class Entry:
    """One name. `answer` is None until the request has ended; `waiters` is the shell's own."""

    __slots__ = (
        "answer",
        "ended_s",
        "fetched",
        "fingerprint",
        "lasting",
        "name",
        "priority",
        "ref",
        "traceparent",
        "type",
        "waiters",
    )

    def __init__(
        self, request: Request, ref: int, fingerprint: bytes | None, *, asynchronous: bool
    ) -> None:
        self.name = request.id
        self.type = request.type
        self.priority = request.priority
        self.traceparent = request.traceparent
        self.ref = ref
        self.fingerprint = fingerprint
        """Of the body it came with; None if it came without a name."""
        self.lasting = asynchronous or fingerprint is not None
        self.fetched = not asynchronous
        """Whether nobody needs to come for the answer any more."""
        self.answer: Answer | None = None
        self.ended_s = 0.0
        self.waiters: tuple[Any, ...] = ()


class Names:
    """Entries by name. `unfetched` counts answers of asynchronous requests that nobody has seen."""

    __slots__ = (
        "_brief",
        "_brief_bytes",
        "_by_name",
        "_bytes",
        "_lasting",
        "_limit",
        "_limit_bytes",
        "_ttl_s",
        "unfetched",
    )

    def __init__(self, ttl_s: float, limit: int, limit_bytes: int) -> None:
        self._ttl_s = ttl_s
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._by_name: dict[str, Entry] = {}
        self._lasting: deque[Entry] = deque()
        self._brief: deque[Entry] = deque()
        self._bytes = 0
        self._brief_bytes = 0
        self.unfetched = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str, now_s: float) -> Entry | None:
        """The entry of this name, if the request is under way or its answer still kept."""
        entry = self._by_name.get(name)
        if entry is not None and entry.answer is not None and now_s >= entry.ended_s + self._ttl_s:
            return None
        return entry

    def open(self, entry: Entry, now_s: float) -> None:
        """A request of this name, which `find` does not know, is under way."""
        self.expire(now_s)
        self._by_name[entry.name] = entry

    def withdraw(self, entry: Entry) -> None:
        """It was refused, which is not remembered."""
        del self._by_name[entry.name]

    def settle(self, entry: Entry, answer: Answer, now_s: float) -> None:
        """The request has ended."""
        entry.answer = answer
        entry.ended_s = now_s
        if not entry.lasting:
            self._brief.append(entry)
            self._brief_bytes += _size_bytes(answer)
            while len(self._brief) > BRIEF_LIMIT or self._brief_bytes > BRIEF_LIMIT_BYTES:
                self._drop_brief()
            return
        self._lasting.append(entry)
        self._bytes += _size_bytes(answer)
        self.unfetched += not entry.fetched
        while len(self._lasting) > self._limit or self._bytes > self._limit_bytes:
            self._drop_oldest()
        self.expire(now_s)

    def fetch(self, entry: Entry) -> None:
        """Somebody has been given the answer."""
        if not entry.fetched and entry.answer is not None:
            entry.fetched = True
            self.unfetched -= self._by_name.get(entry.name) is entry

    @property
    def kept_bytes(self) -> int:
        """What the answers that are kept are reckoned to take."""
        return self._bytes + self._brief_bytes

    def make_room(self, room_bytes: int) -> None:
        """Keep no more than this from now on. What has been given to its client goes first."""
        self._limit_bytes = room_bytes
        if self._bytes + self._brief_bytes <= room_bytes:
            return
        self._limit_bytes = max(0, room_bytes)  # less than nothing is kept nowhere
        while self._brief and self.kept_bytes > room_bytes:
            self._drop_brief()
        while self._lasting and self.kept_bytes > room_bytes:
            self._drop_oldest()

    def check(self) -> None:
        kept = [*self._lasting, *self._brief]
        assert all(entry.answer is not None for entry in kept)
        assert len(self._lasting) <= self._limit
        assert len(self._brief) <= BRIEF_LIMIT
        assert self._bytes == sum(_size_bytes(entry.answer) for entry in self._lasting)
        assert self._bytes <= self._limit_bytes
        assert self._brief_bytes == sum(_size_bytes(entry.answer) for entry in self._brief)
        assert self._brief_bytes <= BRIEF_LIMIT_BYTES
        assert self.unfetched == sum(not entry.fetched for entry in self._lasting)

    def expire(self, now_s: float) -> None:
        """Drop what has been kept for long enough."""
        while self._lasting and now_s >= self._lasting[0].ended_s + self._ttl_s:
            self._drop_oldest()
        while self._brief and now_s >= self._brief[0].ended_s + self._ttl_s:
            self._drop_brief()

    def _drop_brief(self) -> None:
        entry = self._brief.popleft()
        self._brief_bytes -= _size_bytes(entry.answer)
        self._forget(entry)

    def _drop_oldest(self) -> None:
        entry = self._lasting.popleft()
        self._bytes -= _size_bytes(entry.answer)
        self.unfetched -= not entry.fetched
        self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        """An expired name may have been taken again since."""
        if self._by_name.get(entry.name) is entry:
            del self._by_name[entry.name]


def _size_bytes(answer: Answer | None) -> int:
    if answer is None or answer.result is None:
        return ENTRY_BYTES
    return ENTRY_BYTES + len(memoryview(answer.result))
