"""The memory of a home for the requests that clients gave it: one entry for each name.

An entry is opened when a request is accepted. It keeps its answer for a while after the end, so
that the same request under the same name gets the same answer and is not run again. A request that
failed, expired or is unknown runs again instead: a new entry takes the place of the old one, which
comes back if the new run is refused. A name that is not known here any more counts as new.

Two windows bound what is kept. Answers to requests that came with a name, or that are fetched
later, stay `ttl_s`, at most `limit` of them and `limit_bytes` in all. The others have been given to
their clients, and stay only to be asked about: the last BRIEF_LIMIT of them, up to
BRIEF_LIMIT_BYTES.

Not here: who waits for an answer (the shell's business), and where a request is (the machine's).
"""

from __future__ import annotations

from collections import OrderedDict, deque

from spillover.core.overflow.events import Refuse
from spillover.model.ids import name_of
from spillover.model.request import REPLAYED, Answer, Request

BRIEF_LIMIT = 10_000
BRIEF_LIMIT_BYTES = 32 * 1024 * 1024
EXPIRED, NO_ROOM, NODE_ENDED = LOST = ("expired", "no_room", "node_ended")
"""The reasons why an answer that nobody has fetched is kept no longer."""

ENTRY_BYTES = 1024
"""The bytes that an entry is reckoned to take besides its result."""


class IdempotencyRecord:
    """The record of one name. `answer` is None until the request has ended."""

    __slots__ = (
        "answer",
        "client_left",
        "ended_s",
        "fetched",
        "fingerprint",
        "id",
        "lasting",
        "name",
        "received_bytes",
        "ref",
        "refusal",
        "size_bytes",
        "trace",
        "type",
    )

    def __init__(
        self, request: Request, ref: int, fingerprint: bytes | None, *, asynchronous: bool
    ) -> None:
        self.id = request.id
        self.name = name_of(request.id)
        self.type = request.type
        self.trace = request.trace
        self.received_bytes = request.size_bytes
        self.ref = ref
        self.fingerprint = fingerprint
        """The fingerprint of the body it came with; None if it came without a name."""
        self.lasting = asynchronous or fingerprint is not None
        self.fetched = not asynchronous
        """Whether nobody needs to come for the answer any more."""
        self.client_left = False
        """Whether the client has gone, or may have gone, without the answer."""
        self.answer: Answer | None = None
        self.refusal: Refuse | None = None
        """The refusal of a request that was not accepted, and whose entry is withdrawn then; else
        None."""
        self.ended_s = 0.0
        self.size_bytes = 0
        """The bytes that the entry is reckoned to take, once it has its answer."""

    @property
    def may_run_again(self) -> bool:
        """Returns whether the same request under this name is run anew rather than given this
        answer."""
        return self.answer is not None and self.answer.outcome not in REPLAYED


class IdempotencyTable:
    """The entries by id: the names of each tenant are its own. `unfetched` counts answers of
    asynchronous requests that nobody has seen, and `lost` those that were dropped before, by the
    reason."""

    def __init__(self, ttl_s: float, limit: int, limit_bytes: int) -> None:
        self._ttl_s = ttl_s
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._by_id: dict[str, IdempotencyRecord] = {}
        # By id too: an entry leaves from the middle when another run has taken its place.
        self._lasting: OrderedDict[str, IdempotencyRecord] = OrderedDict()
        self._brief: deque[IdempotencyRecord] = deque()
        self._bytes = 0
        self._brief_bytes = 0
        self.unfetched = 0
        self.lost = dict.fromkeys(LOST, 0)

    def __len__(self) -> int:
        return len(self._by_id)

    def keep(self, ttl_s: float, limit: int) -> None:
        """Keep answers for `ttl_s` from now on, and at most `limit` of them."""
        self._ttl_s, self._limit = ttl_s, limit
        self._drop_surplus()

    def find(self, request_id: str, now_s: float) -> IdempotencyRecord | None:
        """Returns the entry of this id, if the request is under way or its answer still kept."""
        entry = self._by_id.get(request_id)
        if entry is not None and entry.answer is not None and now_s >= entry.ended_s + self._ttl_s:
            return None
        return entry

    def open(self, entry: IdempotencyRecord) -> None:
        """Open an entry, as a request of this name is to run. `find` does not know the name, or its
        entry may run again and came with a name. `accept` or `withdraw` follows."""
        self._by_id[entry.id] = entry

    def accept(self, entry: IdempotencyRecord) -> None:
        """Accept an entry, which runs or has run: the answer to the run before is worth nothing any
        more."""
        if self._lasting and self._lasting.get(entry.id, entry) is not entry:
            self._drop_lasting(entry.id)

    def withdraw(self, entry: IdempotencyRecord) -> None:
        """Withdraw an entry whose request was refused, which is not remembered. What was known
        before stays."""
        before = self._lasting.get(entry.id)
        if before is not None:
            self._by_id[entry.id] = before
        else:
            del self._by_id[entry.id]

    def settle(self, entry: IdempotencyRecord, answer: Answer, now_s: float) -> None:
        """Give an entry its answer, as the request has ended."""
        entry.answer = answer
        entry.ended_s = now_s
        size_bytes = ENTRY_BYTES
        if answer.result is not None:
            size_bytes += len(memoryview(answer.result))
        if answer.upstream_body is not None:
            size_bytes += len(memoryview(answer.upstream_body))
        entry.size_bytes = size_bytes
        if not entry.lasting:
            self._brief.append(entry)
            self._brief_bytes += size_bytes
            while len(self._brief) > BRIEF_LIMIT or self._brief_bytes > BRIEF_LIMIT_BYTES:
                self._drop_brief()
            return
        self.accept(entry)  # it may end before its acceptance is reported
        self._lasting[entry.id] = entry
        self._bytes += size_bytes
        self.unfetched += not entry.fetched
        self._drop_surplus()

    def _drop_surplus(self) -> None:
        while len(self._lasting) > self._limit or self._bytes > self._limit_bytes:
            self._lose_lasting(next(iter(self._lasting)), NO_ROOM)

    def fetch(self, entry: IdempotencyRecord) -> None:
        """Note that the answer has been given to somebody."""
        if not entry.fetched and entry.answer is not None:
            entry.fetched = True
            self.unfetched -= self._lasting.get(entry.id) is entry

    def unfetched_ids(self) -> list[str]:
        """Returns the ids of requests whose answers nobody has seen, oldest first."""
        return [entry.id for entry in self._lasting.values() if not entry.fetched]

    @property
    def kept_bytes(self) -> int:
        """Returns the bytes that kept answers are reckoned to take."""
        return self._bytes + self._brief_bytes

    def make_room(self, room_bytes: int) -> None:
        """Keep no more than this from now on. Answers that their clients have got go first."""
        self._limit_bytes = room_bytes
        if self._bytes + self._brief_bytes <= room_bytes:
            return
        self._limit_bytes = max(0, room_bytes)  # a limit below 0 keeps nothing
        while self._brief and self.kept_bytes > room_bytes:
            self._drop_brief()
        while self._lasting and self.kept_bytes > room_bytes:
            self._lose_lasting(next(iter(self._lasting)), NO_ROOM)

    def check(self) -> None:
        lasting = self._lasting.values()
        assert all(entry.answer is not None for entry in (*lasting, *self._brief))
        assert all(one in self._by_id for one in self._lasting)
        assert len(self._lasting) <= self._limit
        assert len(self._brief) <= BRIEF_LIMIT
        assert self._bytes == sum(entry.size_bytes for entry in lasting)
        assert self._bytes <= self._limit_bytes
        assert self._brief_bytes == sum(entry.size_bytes for entry in self._brief)
        assert self._brief_bytes <= BRIEF_LIMIT_BYTES
        assert self.unfetched == sum(not entry.fetched for entry in lasting)

    def expire(self, now_s: float) -> None:
        """Drop answers that have been kept for long enough. This is to be called now and then;
        `find` does not find them even before."""
        while self._lasting:
            oldest = next(iter(self._lasting.values()))
            if now_s < oldest.ended_s + self._ttl_s:
                break
            self._lose_lasting(oldest.id, EXPIRED)
        while self._brief and now_s >= self._brief[0].ended_s + self._ttl_s:
            self._drop_brief()

    def _drop_brief(self) -> None:
        entry = self._brief.popleft()
        self._brief_bytes -= entry.size_bytes
        self._forget(entry)

    def _lose_lasting(self, request_id: str, why: str) -> None:
        self.lost[why] += not self._lasting[request_id].fetched
        self._drop_lasting(request_id)

    def _drop_lasting(self, request_id: str) -> None:
        entry = self._lasting.pop(request_id)
        self._bytes -= entry.size_bytes
        self.unfetched -= not entry.fetched
        self._forget(entry)

    def _forget(self, entry: IdempotencyRecord) -> None:
        """Forget an entry. Its name may have been taken again since."""
        if self._by_id.get(entry.id) is entry:
            del self._by_id[entry.id]
