"""The account after a scenario: what handlers noted and sinks took, against what leases promise.

It goes by the notes of handlers, which no fence protects, and by the instants at which the test
itself froze processes or cut them off; what members believe of their leases is not asked. How the
notes are made is in `lease_handlers_of_tests`, how they are read in `support.leases.members`.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from spillover.model.lease_times import LeaseTimes
from support.waiting import slack

LOG_OF_A_FAULT_OF_OURS = ("Traceback", "AssertionError", "Task exception", "was not taken")

HANDLER_FAILED = re.compile(r"^(.* handler failed .*\n)((?!\d{4}-\d\d-\d\dT).*\n)*", re.MULTILINE)
"""Such a line, and its traceback on the lines after it."""

NOT_SCHEDULED = 0.5
"""A handler that waited longer than it wanted by this share of the margin was not scheduled in
time, and could not be told to stop in time."""


SLACK_S = 1.0
"""For two cores shared by many: until a look at the store leads to a handler that acts."""


def slack_s() -> float:
    """Longer where more is to be run than there are cores."""
    return SLACK_S * slack()


def taken_over_s(times: LeaseTimes) -> float:
    """From a holder's last sign of life until its partitions run elsewhere, at the latest: the
    maximum lease, one period with its jitter, the longest wait."""
    wait_ms = times.max_lease_ms + 1.1 * times.normal_lease_ms + times.longest_wait_ms
    return wait_ms / 1000.0 + slack_s()


class Scene(Protocol):
    """What is asked of a `lease_members.Group`."""

    times: LeaseTimes
    pace_s: float
    blackouts: list[Any]
    members: dict[str, Any]
    former: list[Any]

    def read(self) -> list[Any]: ...
    def records(self) -> list[Any]: ...


@dataclass
class Tenure:
    """One epoch of one partition, by its notes in order."""

    partition: int
    epoch: int
    node: str
    pid: int
    notes: list[Any] = field(default_factory=list)

    @property
    def valid_s(self) -> list[float]:
        """Instants at which the lease let it act, whatever a sink said then."""
        return [note.at_s for note in self.notes if _was_let(note)]

    def __str__(self) -> str:
        return f"partition {self.partition}, epoch {self.epoch}, {self.node} ({self.pid})"


def _was_let(note: Any) -> bool:
    return note.what in {"begin", "act"} or (note.what == "refused" and note.by == "sink")


def tenures(notes: Iterable[Any]) -> dict[tuple[int, int], Tenure]:
    """By partition and epoch; of two nodes' notes under one epoch both are in it."""
    found: dict[tuple[int, int], Tenure] = {}
    for note in notes:
        key = note.partition, note.epoch
        if key not in found:
            found[key] = Tenure(note.partition, note.epoch, note.node, note.pid)
        found[key].notes.append(note)
    return found


def wrongs_of(scene: Scene) -> list[str]:
    """In words, whatever must not be."""
    notes = scene.read()
    by_epoch = tenures(notes)
    return [
        *_wrongs_of_sink(scene.records(), by_epoch),
        *_wrongs_of_epochs(by_epoch),
        *_wrongs_of_blackouts(by_epoch.values(), scene.blackouts, scene.times),
        *_wrongs_of_stops(scene, by_epoch.values()),
        *_wrongs_of_logs(scene),
    ]


def _wrongs_of_sink(
    records: Sequence[Any], by_epoch: dict[tuple[int, int], Tenure]
) -> Iterable[str]:
    """No older epoch after a later one; no number twice, none left out; nothing after the own
    deadline, and nothing of an epoch that never began."""
    latest: dict[int, int] = defaultdict(int)
    numbers: dict[int, int] = defaultdict(int)
    for one in records:
        where = f"the sink took {one}"
        if one.epoch < latest[one.partition]:
            yield f"{where} after epoch {latest[one.partition]}"
        if one.number != numbers[one.partition] + 1:
            yield f"{where} after number {numbers[one.partition]}"
        if one.at_s > one.deadline_s:
            yield f"{where}, tried after its deadline"
        tenure = by_epoch.get((one.partition, one.epoch))
        if tenure is None or (tenure.node, tenure.pid) != (one.node, one.pid):
            yield f"{where}, whose epoch is not its"
        latest[one.partition] = max(latest[one.partition], one.epoch)
        numbers[one.partition] = one.number


def _changes(by_epoch: dict[tuple[int, int], Tenure]) -> Iterable[tuple[Tenure, Tenure]]:
    """One after another in the order of epochs, for each partition; those that never acted left
    out."""
    for _, of_one in itertools.groupby(sorted(by_epoch), key=lambda key: key[0]):
        yield from itertools.pairwise(by_epoch[key] for key in of_one if by_epoch[key].valid_s)


def _wrongs_of_epochs(by_epoch: dict[tuple[int, int], Tenure]) -> Iterable[str]:
    """Each epoch has one holder and begins once; whoever comes later has a later one, and begins
    after the last instant at which the one before was let act."""
    for tenure in by_epoch.values():
        holders = {(note.node, note.pid) for note in tenure.notes}
        if len(holders) > 1:
            yield f"{tenure}: also {holders}"
        if sum(note.what == "begin" for note in tenure.notes) > 1:
            yield f"{tenure}: begins more than once"
    for tenure, later in _changes(by_epoch):
        over_s = max(tenure.valid_s) - min(later.valid_s)
        if over_s > 0:
            yield f"{tenure} acts for {over_s:.4f} s beside {later}"


def _wrongs_of_blackouts(
    all_tenures: Iterable[Tenure], blackouts: Sequence[Any], times: LeaseTimes
) -> Iterable[str]:
    """What could not be renewed ends within a maximum lease, and does not come back."""
    max_lease_s = times.max_lease_ms / 1000.0
    for tenure in all_tenures:
        for black in blackouts:
            over_s = black.from_s + max_lease_s
            if (black.nodes and tenure.node not in black.nodes) or black.to_s < over_s:
                continue
            valid_s = tenure.valid_s
            if valid_s and min(valid_s) < black.from_s and max(valid_s) > over_s:
                late_s = max(valid_s) - over_s
                yield f"{tenure} was let act {late_s:.3f} s after its lease had run out"


def _wrongs_of_stops(scene: Scene, all_tenures: Iterable[Tenure]) -> Iterable[str]:
    """Told to stop while there is time to, unless it was not scheduled, or robbed of it."""
    margin_s = scene.times.fence_margin_ms / 1000.0
    lost = {
        (line.partition, line.epoch)
        for member in [*scene.members.values(), *scene.former]
        for line in member.told("lost")
    }
    for tenure in all_tenures:
        for note in tenure.notes:
            if note.what != "stop" or note.left_s > 0.0:
                continue
            was_late = note.gap_s > scene.pace_s + NOT_SCHEDULED * margin_s
            if not was_late and (tenure.partition, tenure.epoch) not in lost:
                yield f"{tenure} was told to stop when it was over: {note}"


def _wrongs_of_logs(scene: Scene) -> Iterable[str]:
    logs = {member.log for member in [*scene.members.values(), *scene.former]}
    for log in logs:
        # A handler's failure is told with its traceback, and is no fault of ours.
        said = HANDLER_FAILED.sub(r"\1", log.read_text())
        for sign in LOG_OF_A_FAULT_OF_OURS:
            if sign in said:
                yield f"{log.name} has {sign!r}: {said[-2000:]}"


@asynccontextmanager
async def judged(group: Any, *nodes: str, keeps_even: bool = True) -> AsyncIterator[Any]:
    """A `lease_members.Group` with these members, even and at work; in the end it is even again,
    nothing is wrong, and whoever was not killed ends with status 0."""
    async with group:
        group.spawn(*nodes)
        await group.until_even()
        await group.until_served(since_s=time.monotonic())
        yield group
        if keeps_even:
            await group.until_even()
        statuses = await asyncio.to_thread(group.close)
    wrongs = wrongs_of(group)
    assert not wrongs, f"{len(wrongs)} wrongs, such as\n" + "\n".join(wrongs[:10])
    assert set(statuses.values()) <= {0, -9}, statuses


def all_at_once(*scenarios: Coroutine[Any, Any, None], limit_s: float = 100.0) -> None:
    """The first that fails ends all."""

    async def main() -> None:
        async with asyncio.timeout(limit_s), asyncio.TaskGroup() as tasks:
            for scenario in scenarios:
                tasks.create_task(scenario)

    asyncio.run(main())


def refusals(
    scene: Scene, node: str, since_s: float, epochs: dict[int, int]
) -> dict[int, list[Any]]:
    """The first notes after that instant of the tenures that a node had, by partition: where it
    came back after its lease, each begins with its refusal."""
    found: dict[int, list[Any]] = {partition: [] for partition in epochs}
    for note in scene.read():
        is_its = note.node == node and epochs.get(note.partition) == note.epoch
        if is_its and note.at_s >= since_s and note.what != "stop":
            found[note.partition].append(note)
    return found
