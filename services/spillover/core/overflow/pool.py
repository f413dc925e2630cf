"""The pool of a cluster, as the cluster asks it: the servers, the visits that wait for them, and
how long that takes.

The pool's own business is which server fits which visit, in what order visits are served, and what
it makes of the time that services took. `servers` is the pool of m servers alike with a FIFO. What
servers run is the shell's business, and where else a visit could go is the machine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from spillover.core.overflow.sibling import Demand
from spillover.core.overflow.siblings import Siblings
from spillover.core.overflow.visit import Visit
from spillover.policy.overflow.base import OwnLoad


class Servers(Protocol):
    """The servers and the visits that wait for them, of a whole pool or of one group of types."""

    @property
    def working(self) -> int:
        """Returns how many servers to count on: one that is stuck may never come back."""

    @property
    def resting(self) -> bool:
        """Returns whether none of the servers that are up takes anything now: all have asked to be
        left alone."""

    @property
    def waiting(self) -> int:
        """Returns how many visits wait that could use one of them."""

    @property
    def waiting_foreign(self) -> int:
        """Returns how many of those come from neighbors."""

    @property
    def site_waiting(self) -> int:
        """Returns how many of the waiting visits wait at all nodes of the site: N, as neighbors are
        told."""

    @property
    def site_foreign(self) -> int:
        """Returns how many of those come from neighbors."""

    @property
    def ready(self) -> bool:
        """Returns whether a visit that the servers fit could start now."""

    @property
    def idle(self) -> int:
        """Returns how many servers have nothing to do and could start something now."""

    @property
    def service_s(self) -> float:
        """Returns the mean time, in seconds, of a service on one of the servers."""

    @property
    def departure_s(self) -> float:
        """Returns the mean time, in seconds, after which one fewer waits."""

    @property
    def residual(self) -> float:
        """Returns the mean share of a service under way that is left: (1 + c2) / 2, where c2 is the
        squared coefficient of variation of service times."""


class FittingServers(Servers, Protocol):
    """The servers of a pool that fit one group of types, as neighbors are told of them. Where all
    fit, as with servers alike, it is the pool itself."""

    @property
    def up(self) -> int:
        """Returns m: the number of servers that take jobs, unless the whole pool is down."""

    @property
    def ahead(self) -> int:
        """Returns the number of jobs that wait and could use one of these servers, and of jobs on
        them, less `up`."""


class Granted(Protocol):
    """The grant of a visit that runs, where servers are unlike."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the grant as users read it."""


class ServerPool(Servers, Protocol):
    """The servers, and the visits that wait for them. A server may be *stuck*: occupied by work
    whose request has ended. A server whose work has failed may *cool*: it counts as busy for a
    while."""

    now_s: float
    """The time of the event that is handled. The machine sets it."""
    down: bool
    """True if nothing can start for now, free server or not. The machine sets it."""
    stuck: set[int]
    """The refs of visits that have ended while their work still occupies a server. The machine
    keeps it."""
    refusals: int
    """The number of attempts in a row that the service refused. The machine sets it back."""

    @property
    def lines(self) -> int:
        """Returns in how many queues the requests of the site wait: one at each node."""

    @property
    def total(self) -> int:
        """Returns the number of servers; at one node of several, the size of its share."""

    @property
    def busy(self) -> int:
        """Returns how many servers are occupied, or cool."""

    @property
    def site_total(self) -> int:
        """Returns how many servers all nodes of the site have."""

    @property
    def site_busy(self) -> int:
        """Returns how many servers of the site are occupied, as far as is known."""

    @property
    def jobs(self) -> int:
        """Returns how many visits' work occupies servers, including stuck and cooling ones. It is
        `busy` where a server does one thing at a time."""

    @property
    def cooling(self) -> int:
        """Returns how many servers have failed and count as busy for a while."""

    @property
    def next_s(self) -> float:
        """Returns the time when `wake` is to be called next."""

    on_block: str
    """The fate of a visit for which there is no server: `model.unlike_servers.ON_BLOCK`."""
    has_seats: bool
    """Whether `seats` may return True for any visit."""
    counts_work: bool
    """Whether `ahead` is counted by how long waiting visits are expected to run, in requests of
    mean size."""
    is_alike: bool
    """Whether any server fits any visit. If not, a visit that waits may hold a token, with which
    another could start once it has left."""

    def fitting(self, group: int, /) -> FittingServers:
        """Returns the servers that fit the group with this index in `model.type_groups`, which is
        one that is served here."""

    # --- servers ------------------------------------------------------------------------------

    def may_start(self, visit: Visit, /) -> bool:
        """Returns whether a server that fits this visit can start it now. No server fits a visit
        whose type is not served here."""

    def seats(self, visit: Visit, /) -> bool:
        """Returns whether the visit, which cannot start now, has its place at a server all the
        same: it waits there, and is not to go elsewhere."""

    def occupy(self, visit: Visit, /) -> int:
        """Starts a visit that may start. Returns the number of its server, 0 where all are
        alike."""

    def granted(self, ref: int, /) -> Granted | None:
        """Returns the grant of this visit, which runs, with what else was there, for `/explain`;
        None where all servers are alike."""

    def resize(self, total: int, /) -> bool:
        """Has so many servers from now on. Returns False where they are unlike, and stay."""

    def set_tokens(self, limits: Mapping[str, int], servers_in: Mapping[str, bool], /) -> None:
        """Has so many tokens from now on, by the id of the class; tokens that are held stay held.
        Servers are in (True) or out, by their ids; those that are out take nothing new. This is
        only for servers that are unlike."""

    def has_turned(self) -> bool:
        """Returns whether any server has begun or ceased to take jobs since the last call; False
        where servers are alike."""

    def server_changed(self, server: int, up: bool, now_s: float, /) -> None:  # noqa: FBT001
        """Notes that a server cannot run any request for now, or can again. If it was the last one,
        the machine sets `down` besides."""

    def not_done(self, ref: int, /, *, failed: bool) -> None:
        """Notes that the work of this visit has failed, or was stopped; its server is vacated or
        cools next. This is not called for work that is done."""

    def said(self, ref: int, how: str, problem: str | None, /) -> str | None:
        """Notes that the work of this visit came to nothing: `how` is an outcome, or that it was
        not run. Returns the id of the server, which is not free yet; None where all are alike."""

    def refused(self, visit: Visit, /) -> bool:
        """Notes that the work of this visit, which ended last, surely was not done by its server.
        Returns whether a server takes it that has not refused it yet; False where all are alike."""

    def vacate(self, ref: int, /) -> None:
        """Frees the server of this visit."""

    def cool(self, ref: int, until_s: float, /) -> None:
        """Frees the server of this visit, but counts it as busy until `until_s`."""

    def served(self, ref: int, service_s: float, /) -> None:
        """Learns that the server of this visit took so long. This is called even if nobody waited
        for the end any more, or the work failed late: without the long ones the mean would be too
        low."""

    def refused_pause_s(self) -> float:
        """Counts one more attempt that was refused. Returns how long it takes at least, in
        seconds."""

    def rest(self, ref: int, until_s: float, /) -> bool:
        """Lets the server of this visit, which ended last, rest until `until_s`, or until a later
        time given before, as it has asked for; all rest where they are alike. Returns whether this
        is why nothing starts any more, where something did."""

    def rest_s(self, now_s: float, /) -> float:
        """Returns how many seconds the rest lasts; 0 without one."""

    def end_rest(self) -> None:
        """Ends all rests: something can start again."""

    def wake(self, now_s: float, /) -> bool:
        """Frees servers that have cooled, and ends a rest that is over. Returns whether one was."""

    # --- those that wait ----------------------------------------------------------------------

    def __iter__(self) -> Iterator[Visit]:
        """Yields the visits that wait, in the order in which they would be served."""

    def join(self, visit: Visit, /, *, first: bool = False) -> None:
        """Has a visit wait from now on; its `place`, which is the pool's own, is then no longer
        None. A visit whose type is not served here waits, too: for a neighbor. `first`, only where
        servers are alike, says that it has waited here before, and that all who wait now came
        later."""

    def leave(self, visit: Visit, /) -> None:
        """Takes a visit out of wherever it waits."""

    def pop(self) -> Visit | None:
        """Takes out the next visit that can start now, and returns it; None if none can."""

    # --- estimates ----------------------------------------------------------------------------

    def own_load(
        self,
        visit: Visit,
        may_keep: bool,  # noqa: FBT001 - on the way of every request
        load: float,
        now_s: float,
        unreported: tuple[int, ...],
        /,
    ) -> OwnLoad:
        """Returns the load that the policy gets of the servers that fit this visit, which may wait
        already. `may_keep` is the machine's part of that load; other arguments are passed on."""

    def stay_s(self, visit: Visit, now_s: float, /) -> float:
        """Returns how many seconds the visit will be here if it joins now, with a margin; 0 where
        the visits that wait do not tell."""

    def retry_after_s(self, visit: Visit, now_s: float, /) -> float:
        """Returns the seconds after which there may be a place for the visit, which is refused
        now."""

    def check(self) -> None:
        """Raises AssertionError if the pool contradicts itself."""


class SitePool(ServerPool, Protocol):
    """The pool of one node of a site of several (decision 0049)."""

    siblings: Siblings

    @property
    def others_stay(self) -> bool:
        """Returns whether a sibling that this node hears, and that hears it, does not drain."""

    def take_share(self) -> bool:
        """Adjusts the pool to its share. Returns whether more can start than before."""

    def note(self, now_s: float, /) -> bool:
        """Notes what waits and runs now, at a pool of which nothing is down. Returns whether that
        is all there is to do, as after most events."""

    def demand(self, load: float, *, leaves: bool) -> Demand:
        """Returns what the siblings are to know of this node, whose clients bring this load, and
        which drains if it `leaves`."""
