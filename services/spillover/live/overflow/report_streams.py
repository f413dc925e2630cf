"""The streams on which neighbors hear this node's reports: one long-lived response each.

Lines leave through the emulated links, in order with all else and as late. A line that is lost or
cut off there is not sent again, nor is one that a reader has no room for: the next says more. The
number of streams is bounded. A neighbor that comes back after its connection was cut off without a
word gets a new stream, and the oldest one ends.

The server of the response knows how a line is written. No task and no queue stand in between: these
lines are most of what an idle node does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial

from spillover.live.overflow.configured import Configured
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.report_lines import encode_report
from spillover.live.overflow.report_repeats import Repeats
from spillover.model.load import LoadReport

STREAMS_PER_NEIGHBOR_MAX = 4
"""The most streams of one neighbor where nobody proves who they are. A caller that merely claims to
be the neighbor must not be able to end the neighbor's stream at once."""


class ReportStream:
    """The stream of one reader, which is node or process `node` of its cluster. `put` writes a line
    to it, or drops the line if the reader does not keep up, and returns whether it was written."""

    def __init__(self, put: Callable[[bytes], bool], node: int = 1) -> None:
        self.put, self.node = put, node
        self._ended = asyncio.Event()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def until_ended(self) -> None:
        await self._ended.wait()

    def end(self) -> None:
        self._ended.set()


class ReportStreams:
    """All streams of a node, whose reports are `period_s` apart. `emulated_links` lead to its
    neighbors, by their handles; neighbors may come and go. `configured` is what reports say of the
    configuration.
    """

    def __init__(
        self,
        emulated_links: Mapping[int, EmulatedLink],
        period_s: float,
        configured: Configured | None = None,
        per_neighbor_max: int = STREAMS_PER_NEIGHBOR_MAX,
    ) -> None:
        self.per_neighbor_max = per_neighbor_max
        self._emulated_links = emulated_links
        self._configured = Configured() if configured is None else configured
        self._repeats = Repeats(period_s)
        self._streams: dict[int, list[ReportStream]] = {}
        self._closed = False
        self._clients: int | None = None
        self._turns: dict[int, int] = {}
        """The number of questions that each neighbor has been asked."""

    def open(
        self, neighbor: int, put: Callable[[bytes], bool], node: int = 1
    ) -> ReportStream | None:
        """Opens a stream for this node or process of a neighbor, and returns it; None if this node
        ends. If the neighbor has too many streams, the oldest ends: most likely nobody reads it any
        more, and TCP has not noticed yet."""
        if self._closed:
            return None
        streams = self._streams.setdefault(neighbor, [])
        if len(streams) >= self.per_neighbor_max:
            streams.pop(0).end()
        self._repeats.start_over()
        stream = ReportStream(put, node)
        streams.append(stream)
        return stream

    def drop(self, neighbor: int, stream: ReportStream) -> None:
        """Forget a stream whose reader has gone, or that has ended."""
        streams = self._streams.get(neighbor, [])
        if stream in streams:
            streams.remove(stream)

    def end(self, neighbor: int) -> None:
        self._turns.pop(neighbor, None)
        for stream in self._streams.pop(neighbor, []):
            stream.end()

    def tell(self, report: LoadReport) -> None:
        """Say a report on all streams, unless they have heard as much, as far as can be known.
        Where a link is made to lose what leaves, or holds it up, every report is said, and for a
        while after that."""
        if any(
            emulated_link.cut or emulated_link.faults.loss
            for emulated_link in self._emulated_links.values()
        ):
            self._repeats.start_over()
        if self._repeats.is_due(report, time.monotonic()):
            self.publish(encode_report(report, self._configured.reported, self._clients))

    def tell_clients(self, number: int) -> None:
        """Have the next reports say how many clients have a session here."""
        if number != self._clients:
            self._clients = number
            self._repeats.start_over()

    def publish(self, line: bytes) -> None:
        """Put a line in all streams, on each link when it leaves there. All lines have the same
        instant: those that are as late on several links then take one wake of the loop."""
        now_s = time.monotonic()
        for neighbor, streams in self._streams.items():
            if streams:
                put = partial(_put_in_each, streams, line)
                emulated_link = self._emulated_links[neighbor]
                emulated_link.send(put, _drop, waits=False, now_s=now_s)

    def start_over(self) -> None:
        """Say the next report, whatever was said before."""
        self._repeats.start_over()

    def say(self, neighbor: int, line: bytes) -> None:
        if streams := self._streams.get(neighbor):
            put = partial(_put_in_each, streams, line)
            self._emulated_links[neighbor].send(put, _drop, waits=False)

    def ask(self, neighbor: int, line: bytes) -> None:
        """Put a question to one of a neighbor's nodes and processes, each in its turn, or to the
        next one if it cannot be written: one is to answer. The question goes into the newest stream
        of each, since most likely nobody reads the older ones."""
        living = [stream for stream in self._streams.get(neighbor, ()) if not stream.ended]
        streams = list({stream.node: stream for stream in living}.values())
        if streams:
            turn = self._turns[neighbor] = (self._turns.get(neighbor, -1) + 1) % len(streams)
            put = partial(_put_in_one, streams[turn:] + streams[:turn], line)
            self._emulated_links[neighbor].send(put, _drop, waits=False)

    def close(self) -> None:
        """End all streams, for good. This comes first when a node stops: an open stream holds up
        the server."""
        self._closed = True
        self.end_all()

    def end_all(self) -> None:
        """End all streams: neighbors are to listen to another node."""
        for streams in self._streams.values():
            for stream in streams:
                stream.end()


def _put_in_each(streams: list[ReportStream], line: bytes) -> None:
    for stream in streams:
        if not stream.ended:
            stream.put(line)


def _put_in_one(streams: list[ReportStream], line: bytes) -> None:
    for stream in streams:
        if not stream.ended and stream.put(line):
            return


def _drop() -> None:
    """Do nothing; this is never called, since what does not wait is dropped in silence."""
