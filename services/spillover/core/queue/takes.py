"""The takes that one producer holds: consumers' calls that wait for an object, wherever it is."""

from __future__ import annotations

from spillover.core.agenda import Agenda
from spillover.core.queue.events import Probe, Taken


class OpenTake:
    """One call, and the probes that were sent for it."""

    def __init__(self, asked: Taken, begun_s: float) -> None:
        self.ref = asked.ref
        self.begun_s = begun_s
        self.id = asked.probe_id
        self.consumer = asked.consumer
        self.max_hops = asked.max_hops
        self.access = asked.access
        self.avoid_visited = asked.avoid_visited
        self.deadline_s = asked.deadline_s
        self.probes = 0
        """How many were sent."""
        self.deadline_alarm = self.sweep_alarm = 0
        """The agenda's alarms that end the take, and send its next probe."""

    def probe(self, holder: str, left_s: float) -> Probe:
        """Returns the first probe, which begins at the holder."""
        return self._probe(holder, left_s, self.max_hops, self.avoid_visited)

    def sweep(self, holder: str, left_s: float, reach: int) -> Probe:
        """Returns a probe that visits all of the producers that the consumer can reach."""
        return self._probe(holder, left_s, max(self.max_hops, reach), avoid_visited=True)

    def _probe(
        self,
        holder: str,
        left_s: float,
        max_hops: int,
        avoid_visited: bool,  # noqa: FBT001 - as of the take, or True
    ) -> Probe:
        self.probes += 1
        return Probe(
            id=self.id,
            first=holder,
            consumer=self.consumer,
            hop=1,
            max_hops=max_hops,
            access=self.access,
            avoid_visited=avoid_visited,
            visited=(),
            left_s=left_s,
        )


class Takes:
    """The open takes, by the id of their probes and by their call."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self.by_id: dict[str, OpenTake] = {}
        self._by_ref: dict[int, OpenTake] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, take: OpenTake | str) -> bool:
        """Returns whether this very take is open, or one of that id."""
        if isinstance(take, str):
            return take in self.by_id
        return self.by_id.get(take.id) is take

    def add(self, take: OpenTake) -> None:
        self.by_id[take.id] = take
        self._by_ref[take.ref] = take

    def end(self, take: OpenTake) -> bool:
        """It is answered. Whether it was open."""
        if take not in self:
            return False
        del self.by_id[take.id]
        del self._by_ref[take.ref]
        self._agenda.drop(take.deadline_alarm)
        self._agenda.drop(take.sweep_alarm)
        return True

    def end_call(self, ref: int) -> None:
        """Nobody waits for it any more; nothing where it was answered before."""
        if (take := self._by_ref.get(ref)) is not None:
            self.end(take)
