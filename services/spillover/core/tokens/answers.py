"""Which types of jobs a server of a pool does not do, though the topology says that it serves them.

Told of what ends. Nothing is decided by it: what a client sends could else take a server out. It
is for operators to read (`/state`, the log), who know what is behind a server.
"""

from __future__ import annotations

from collections.abc import Iterator

NOT_RUN = "not_run"
REJECTED = "rejected"
FAILED = "failed"

RUN_LENGTH = 5
"""So many jobs of a type in a row, none of them done, are worth a word."""

UNLIKELY = 1e-9
"""A run of rejections is worth a word only if the others have done as many meanwhile as make one,
and one as long is less likely than this by chance, at the share that they have rejected: a client
that sends what no server takes is at fault itself. So small, since every job is a chance."""


class JobRun:
    """Jobs of one type in a row that one server has not done, each in the same way."""

    def __init__(self, how: str, done_before: int, rejected_before: int) -> None:
        self.how = how
        """NOT_RUN, REJECTED or FAILED."""
        self.count = 0
        self.problem = ""
        """The problem in the last answer."""
        self.done_before = done_before
        self.rejected_before = rejected_before
        """The numbers of jobs of this type that had ended when the run began."""


class _OfType:
    """The jobs of one type that have ended since some server began to do none of it."""

    def __init__(self) -> None:
        self.done = self.rejected = 0
        self.runs: dict[int, JobRun] = {}

    def done_elsewhere(self, run: JobRun) -> int:
        """Returns how many others have done since the run began: each done by its own server ends
        it."""
        return self.done - run.done_before

    def is_telling(self, run: JobRun) -> bool:
        """Returns whether the run is long enough to be shown."""
        if run.count < RUN_LENGTH:
            return False
        if run.how != REJECTED:
            return True
        done = self.done_elsewhere(run)
        if done < RUN_LENGTH:
            return False
        rejected = self.rejected - run.rejected_before - run.count
        share = (rejected + 1.0) / (done + rejected + 2.0)  # Laplace's rule of succession
        return share**run.count < UNLIKELY


class TypeAnswers:
    """The answers of servers to types of a pool, by their numbers: at most one run for each
    pair."""

    def __init__(self) -> None:
        self._by_type: dict[int, _OfType] = {}
        """The answers of each type that has a run, and of no other."""

    def __bool__(self) -> bool:
        """Returns whether a job that is done tells anything new."""
        return bool(self._by_type)

    def done(self, server: int, kind: int) -> None:
        of_type = self._by_type.get(kind)
        if of_type is None:
            return
        of_type.done += 1
        of_type.runs.pop(server, None)
        if not of_type.runs:
            del self._by_type[kind]

    def not_done(self, server: int, kind: int, how: str, problem: str | None) -> None:
        of_type = self._by_type.setdefault(kind, _OfType())
        run = of_type.runs.get(server)
        if run is None or run.how != how:
            run = of_type.runs[server] = JobRun(how, of_type.done, of_type.rejected)
        of_type.rejected += how == REJECTED
        run.count += 1
        run.problem = problem or ""

    def of(self, server: int) -> Iterator[tuple[int, JobRun, int]]:
        """Returns the runs of a server: the type, the run, and how many others have done since."""
        for kind, of_type in self._by_type.items():
            if (run := of_type.runs.get(server)) is not None:
                yield kind, run, of_type.done_elsewhere(run)

    def telling(self) -> Iterator[tuple[int, int, JobRun, int]]:
        """Returns those that are worth a word: server, type, run, how many others have done."""
        for kind, of_type in self._by_type.items():
            for server, run in of_type.runs.items():
                if of_type.is_telling(run):
                    yield server, kind, run, of_type.done_elsewhere(run)
