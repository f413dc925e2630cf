"""The tokens of a pool: which are available, in order of release, and which are held, by whom.

Which of them a job takes is decided in `policy.tokens`; which server it goes to then, and who waits
for one, in `servers`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from spillover.policy.tokens import NONE, fill, load_rank, longest_available, rivals, speeds


class Token:
    """One token, which one job at a time holds. It is in one place: available, held, or out."""

    __slots__ = ("holder", "id", "kind", "number", "released_s")

    def __init__(self, id_: str, kind: int) -> None:
        self.id = id_
        self.kind = kind
        """The number of its class."""
        self.holder: int | None = None
        """The ref of the visit that holds it."""
        self.number = 0
        """The number of its last release."""
        self.released_s = 0.0


class _Class:
    """The tokens of one class, wherever they are. Only the bucket touches it."""

    def __init__(self, id_: str, limit: int) -> None:
        self.id = id_
        self.limit = limit
        self.available: deque[Token] = deque()
        """The tokens to be taken, in order of release."""
        self.out: deque[Token] = deque()
        """The tokens that are not to be taken: no server takes them, or they have not come back
        yet."""
        self.made: dict[str, Token] = {}
        """All, those that will retire too."""
        self.is_closed = False
        self.starts = False
        """True in a slow start."""
        self.served = 0
        """How many jobs it has served in the slow start."""
        self.back = 0
        """How many tokens have come back in it."""

    @property
    def circulating(self) -> int:
        return len(self.made) - len(self.out)


class Loads:
    """How loaded the classes are, by the rates of their servers and by which types may join them:
    what the order `least-loaded` goes by. Only the bucket tells it anything."""

    def __init__(self, rates: Sequence[Sequence[float]], joins: Sequence[Sequence[int]]) -> None:
        self.ranks: list[float] = [NONE] * len(rates)
        """The rank of each class: the smaller, the sooner one of its tokens is taken; NONE without
        any."""
        self._speeds = speeds(rates)
        self._rivals = rivals(joins, len(rates))
        self._available = [0] * len(rates)
        """The number of available tokens of each class, as `told` last."""
        self._free = [0] * len(joins)
        """The number of tokens that a job of each type could take."""

    def told(self, kind: int, available: int, held: int) -> None:
        """Note that so many tokens of this class are available now, and so many in use."""
        types, free = self._rivals[kind], self._free
        more = available - self._available[kind]
        if more:
            self._available[kind] = available
            for type_ in types:
                free[type_] += more
        if available:
            self.ranks[kind] = load_rank(held, self._speeds[kind], types, 0, len(types), free)
        else:
            self.ranks[kind] = NONE

    def check(self, available: Sequence[int]) -> None:
        """Raise AssertionError unless these are the tokens that it counts with."""
        assert self._available == available
        free = [0] * len(self._free)
        for types, count in zip(self._rivals, available, strict=True):
            for type_ in types:
                free[type_] += count
        assert self._free == free


class Bucket:
    """The tokens of all classes, which are named by their numbers.

    Of each class, available + held + out = limit + retiring. A limit that is lowered takes tokens
    that nobody holds, first those that are out; the others *retire* when they are given back. A
    class that is *closed* has none available. Opened again, it has a *slow start*: one of its
    tokens comes back at once, and one more with each job that it has served since.

    `choose` answers which class a job takes a token of: of the longest available one, or, where
    there are `loads`, of the least loaded class. It is asked twice for most jobs, so that the last
    answer is kept until something changes.
    """

    def __init__(
        self, classes: Iterable[tuple[str, int]], now_s: float, loads: Loads | None = None
    ) -> None:
        """`classes` are (id, limit)."""
        self._classes = [_Class(id_, limit) for id_, limit in classes]
        self.everywhere: Callable[[int], int] = self.limit
        """Returns how many tokens a class has here and in buckets that share it. A slow start lasts
        until so many have come back: they may come from the others."""
        self.released: dict[int, None] = {}
        """Classes of which tokens were released since this was last cleared, by whoever serves
        those that wait."""
        self._asked: Sequence[int] | None = None
        self._answer = 0
        limits = [each.limit for each in self._classes]
        first = [sum(limits[:i]) for i in range(len(limits))]
        numbers, counts = [0] * sum(limits), [0] * len(limits)
        self.oldest = [0] * len(limits)
        """The number of the longest available token of each class, NONE without any."""
        self.next_number = fill(limits, first, numbers, counts, counts, self.oldest)
        for kind, entry in enumerate(self._classes):
            for place in range(entry.limit):
                token = self._make(kind)
                token.number, token.released_s = numbers[first[kind] + place], now_s
                entry.available.append(token)
        self._loads = loads
        self.ranks: list[int] | list[float] = self.oldest if loads is None else loads.ranks
        """The rank of each class, by which the choice goes, the smallest first; NONE without a
        token."""
        for _ in range(2):  # how short of tokens a type is depends on all classes
            for kind in range(len(limits)):
                self._weigh(kind)

    def choose(self, classes: Sequence[int]) -> int:
        """Returns the class among these that comes first, BLOCKED if none has a token."""
        if classes is not self._asked:
            self._answer = longest_available(classes, 0, len(classes), self.ranks)
            self._asked = classes
        return self._answer

    def seize(self, kind: int, holder: int) -> Token:
        """Returns the longest available token of this class, of which there must be one: `holder`
        has it from now on."""
        available = self._classes[kind].available
        token = available.popleft()
        token.holder = holder
        self.oldest[kind] = available[0].number if available else NONE
        self._asked = None
        if self._loads is not None:
            self._weigh(kind)
        return token

    def give_back(self, token: Token, holder: int, served: bool, now_s: float) -> bool:
        """Take back a token; `served` says whether its job was. Whether this holder had it: what
        comes late, or twice, changes nothing."""
        if token.holder != holder:
            return False
        token.holder = None
        entry = self._classes[token.kind]
        if served and entry.starts:
            entry.served += 1
        if len(entry.made) > entry.limit:
            del entry.made[token.id]
        elif entry.is_closed or (entry.starts and not served):
            entry.out.append(token)
        else:
            self._release(entry, token, now_s)
        if entry.starts:
            self._start(token.kind, now_s)
        if self._loads is not None:
            self._weigh(token.kind)
        return True

    # --- what operators and servers change ----------------------------------------------------

    def set_limit(self, kind: int, limit: int, now_s: float) -> None:
        """Have so many tokens of this class, of which there may be more until jobs have ended."""
        entry = self._classes[kind]
        entry.limit = limit
        while len(entry.made) < limit:
            token = self._make(kind)
            if entry.is_closed or entry.starts:
                entry.out.append(token)
            else:
                self._release(entry, token, now_s)
        while len(entry.made) > limit and (entry.out or entry.available):
            if entry.starts and not entry.out and limit < self.everywhere(kind):
                entry.back -= 1  # it is elsewhere, and may come back again
            del entry.made[(entry.out or entry.available).pop().id]
        if entry.starts:
            self._start(kind, now_s)
        self._changed(kind)

    def close(self, kind: int) -> None:
        """Have none of this class available until it is opened."""
        entry = self._classes[kind]
        entry.is_closed, entry.starts = True, False
        entry.out.extend(entry.available)
        entry.available.clear()
        self._changed(kind)

    def open(self, kind: int, now_s: float) -> None:
        """Let the tokens of a closed class come back."""
        entry = self._classes[kind]
        entry.is_closed, entry.starts = False, True
        entry.served = entry.back = 0
        self._start(kind, now_s)
        self._weigh(kind)

    def _start(self, kind: int, now_s: float) -> None:
        """Let come back what may by now. One must be there whatever the others came to: else
        nothing could be served any more."""
        entry = self._classes[kind]
        if entry.served + 1 >= self.everywhere(kind):
            entry.starts = False
        while entry.out and (
            not entry.starts or entry.back <= entry.served or not entry.circulating
        ):
            entry.back += 1
            self._release(entry, entry.out.popleft(), now_s)

    def _make(self, kind: int) -> Token:
        """A token that is nowhere yet. Its id is the first that is free, so that ids stay few."""
        entry = self._classes[kind]
        number = len(entry.made) + 1
        while (id_ := f"{entry.id}-{number}") in entry.made:
            number -= 1
        token = entry.made[id_] = Token(id_, kind)
        return token

    def _release(self, entry: _Class, token: Token, now_s: float) -> None:
        token.number, token.released_s = self.next_number, now_s
        self.next_number += 1
        if not entry.available:
            self.oldest[token.kind] = token.number
        entry.available.append(token)
        self.released[token.kind] = None
        self._asked = None

    def _changed(self, kind: int) -> None:
        available = self._classes[kind].available
        self.oldest[kind] = available[0].number if available else NONE
        self._asked = None
        self._weigh(kind)

    def _weigh(self, kind: int) -> None:
        """Tokens of this class have come or gone: so may its place in the order."""
        if self._loads is not None:
            self._asked = None
            entry = self._classes[kind]
            available = len(entry.available)
            self._loads.told(kind, available, len(entry.made) - available - len(entry.out))

    # --- what there is ------------------------------------------------------------------------

    def available_now(self, kind: int) -> int:
        return len(self._classes[kind].available)

    def unheld_now(self, kind: int) -> int:
        """Returns how many tokens of this class nobody holds."""
        entry = self._classes[kind]
        return len(entry.available) + len(entry.out)

    def in_use(self, kind: int, *, keeps: bool) -> int:
        """Returns how many tokens of this class are held, and where it `keeps` those that come back
        one after another, these too."""
        entry = self._classes[kind]
        kept = len(entry.out) if keeps and not entry.is_closed else 0
        return entry.circulating - len(entry.available) + kept

    def limit(self, kind: int) -> int:
        return self._classes[kind].limit

    def counts(self, kind: int) -> dict[str, int]:
        """Returns how many tokens of this class there are, by where they are."""
        entry = self._classes[kind]
        return {
            "limit": entry.limit,
            "available": len(entry.available),
            "held": sum(token.holder is not None for token in entry.made.values()),
            "out": len(entry.out),
            "retiring": max(0, len(entry.made) - entry.limit),
        }

    def tokens(self, kind: int) -> list[Token]:
        """Returns those that are available, in order of release."""
        return list(self._classes[kind].available)

    def check(self) -> None:
        """Raise AssertionError where a token is lost, or in two places."""
        numbers: set[int] = set()
        for kind, entry in enumerate(self._classes):
            counts = self.counts(kind)
            there = counts["available"] + counts["held"] + counts["out"]
            assert there == counts["limit"] + counts["retiring"], (entry.id, counts)
            free = [*entry.available, *entry.out]
            assert all(entry.made[token.id] is token for token in free), entry.id
            assert all(token.holder is None for token in free), entry.id
            assert len({token.id for token in free}) == len(free), entry.id
            assert not counts["retiring"] or not free, (entry.id, counts)
            order = [token.number for token in entry.available]
            assert order == sorted(order), (entry.id, order)
            assert not numbers.intersection(order), "two releases with one number"
            numbers.update(order)
            assert self.oldest[kind] == (order[0] if order else NONE), entry.id
            assert (self.ranks[kind] == NONE) is not bool(order), entry.id
            assert not (entry.is_closed and order), "a closed class has tokens"
            assert entry.is_closed or entry.starts or not entry.out, entry.id
            assert not (entry.starts and entry.made) or entry.circulating, entry.id
        assert not numbers or max(numbers) < self.next_number
        if self._loads is not None:
            self._loads.check([len(entry.available) for entry in self._classes])
