"""What a cluster asks of its pool: the servers, the visits that wait for them, and how long that
takes.

Which server fits which visit, in what order visits are served, and what is made of the time that
services took is the pool's own business: `servers` is the one of m servers alike and a FIFO. What
they run is the shell's business, and where else a visit could go the machine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from spillover.core.overflow.visit import Visit
from spillover.policy.overflow.base import OwnLoad


class Servers(Protocol):
    """Servers, and who waits for them: a whole pool, or those of it that fit one group of types."""

    @property
    def working(self) -> int:
        """Returns how many to count on: one that is stuck may never come back."""

    @property
    def resting(self) -> bool:
        """Returns whether none that is up takes anything now: all have asked to be left alone."""

    @property
    def waiting(self) -> int:
        """Returns how many visits wait that could use one of them."""

    @property
    def waiting_foreign(self) -> int:
        """Returns how many of those come from neighbors."""

    @property
    def site_waiting(self) -> int:
        """Returns how many of those wait at all nodes of the site: N, as neighbors are told."""

    @property
    def site_foreign(self) -> int:
        """Returns how many of those come from neighbors."""

    @property
    def ready(self) -> bool:
        """Returns whether a visit that they fit could start now."""

    @property
    def idle(self) -> int:
        """Returns how many of them have nothing to do and could start something now."""

    @property
    def service_s(self) -> float:
        """Returns how long a service takes on one of them, on average, alone."""

    @property
    def departure_s(self) -> float:
        """Returns how long those that wait take, on average, to become one fewer."""

    @property
    def residual(self) -> float:
        """Returns how much of a service is left, on average, of one under way: (1 + c2) / 2, c2 the
        squared coefficient of variation of service times."""


class FittingServers(Servers, Protocol):
    """The servers of a pool that fit one group of types: what neighbors are told. Where all fit, as
    with servers alike, it is the pool itself."""

    @property
    def up(self) -> int:
        """Returns m: how many take jobs, unless the whole pool is down."""

    @property
    def ahead(self) -> int:
        """Returns the jobs that wait and could use one of them and those on them, less `up`."""


class Granted(Protocol):
    """What a visit was given, where servers are unlike."""

    def as_dict(self) -> dict[str, Any]:
        """Returns it as users read it."""


class ServerPool(Servers, Protocol):
    """Servers, and those that wait for them. A server may be *stuck*: occupied by work whose
    request has ended. One whose work has failed may *cool*: it counts as busy for a while.
    """

    now_s: float
    """The time of what is handled. Set by the machine."""
    down: bool
    """Nothing can start for now, free server or not. Set by the machine."""
    stuck: set[int]
    """Refs of visits that have ended while their work still occupies a server. Kept by the
    machine."""
    refusals: int
    """Attempts in a row that what runs the work refused. Set back by the machine."""

    @property
    def lines(self) -> int:
        """Returns in how many queues the requests of the site wait: one at each node."""

    @property
    def total(self) -> int:
        """Returns how many servers there are: of one node of several, how many are its share."""

    @property
    def busy(self) -> int:
        """Returns how many are occupied, or cool."""

    @property
    def site_total(self) -> int:
        """Returns how many servers all nodes of the site have."""

    @property
    def site_busy(self) -> int:
        """Returns how many of those are occupied, as far as is known."""

    @property
    def jobs(self) -> int:
        """Returns how many visits' work occupies them, with what is stuck or cools. It is `busy`
        where a server does one thing at a time."""

    @property
    def cooling(self) -> int:
        """Returns how many have failed and count as busy for a while."""

    @property
    def next_s(self) -> float:
        """Returns when to call `wake` next."""

    on_block: str
    """What is done with a visit for which there is no server: `model.unlike_servers.ON_BLOCK`."""
    has_seats: bool
    """Whether `seats` may say so of any visit."""
    counts_work: bool
    """Whether `ahead` is counted by how long what waits is expected to run: in requests of mean
    size."""
    is_alike: bool
    """Whether any server fits any visit. Else one that waits may hold a token, with which another
    could start once it has left."""

    def fitting(self, group: int, /) -> FittingServers:
        """Returns the servers that fit this group of types (`model.type_groups`), by its place
        there; one that is served here."""

    # --- servers ------------------------------------------------------------------------------

    def may_start(self, visit: Visit, /) -> bool:
        """Returns whether a server that fits this visit can start it now. None fits one whose type
        is not served here."""

    def seats(self, visit: Visit, /) -> bool:
        """Returns whether the visit, which cannot start now, has its place at a server all the
        same, and waits there: it is not to go elsewhere."""

    def occupy(self, visit: Visit, /) -> int:
        """A visit that may start does: the number of its server, 0 where all are alike."""

    def granted(self, ref: int, /) -> Granted | None:
        """Returns what this visit, which runs, was given and what else was there, for `/explain`;
        None where all servers are alike."""

    def resize(self, total: int, /) -> bool:
        """There are so many servers from now on. Returns False where they are unlike, and stay."""

    def set_tokens(self, limits: Mapping[str, int], servers_in: Mapping[str, bool], /) -> None:
        """Has so many tokens from now on, by the id of the class: held ones are not taken. Servers,
        by id, are in (True) or out: these take nothing new. Only where servers are unlike."""

    def has_turned(self) -> bool:
        """Returns whether a server takes jobs that did not when this was asked last, or the other
        way round; False where they are alike."""

    def server_changed(self, server: int, up: bool, now_s: float, /) -> None:  # noqa: FBT001
        """What runs requests on that server cannot run any for now, or can again. Where it was the
        last one, the machine sets `down` besides."""

    def not_done(self, ref: int, /, *, failed: bool) -> None:
        """The work of this visit, whose server is to be vacated or cools next, has failed, or was
        stopped. Nothing is said of work that is done."""

    def said(self, ref: int, how: str, problem: str | None, /) -> str | None:
        """The work of this visit came to nothing by what runs it: an outcome, or not run. Returns
        the server, by its id, None where all are alike; it is not free yet."""

    def refused(self, visit: Visit, /) -> bool:
        """What ran the work of this visit, which ended last, surely has not done it. Returns
        whether a server takes it that has not said so yet; False where all are alike."""

    def vacate(self, ref: int, /) -> None:
        """The server of this visit is free."""

    def cool(self, ref: int, until_s: float, /) -> None:
        """The server of this visit is, but counts as busy until then."""

    def served(self, ref: int, service_s: float, /) -> None:
        """That server took this time. To be told also where nobody waited for the end any more, or
        it failed late: without the long ones the mean would be too low."""

    def refused_pause_s(self) -> float:
        """One more attempt was refused: how long it counts as at least."""

    def rest(self, ref: int, until_s: float, /) -> bool:
        """What ran the work of this visit, which ended last, asks to be left alone until then, or
        until a later instant given before: its server is, or all where they are alike. Returns
        whether nothing starts any more by that, where something did."""

    def rest_s(self, now_s: float, /) -> float:
        """Returns how long the rest lasts; 0 without one."""

    def end_rest(self) -> None:
        """What has asked to be left alone can start something again."""

    def wake(self, now_s: float, /) -> bool:
        """Free what has cooled, and end a rest that is over. Whether it was one."""

    # --- those that wait ----------------------------------------------------------------------

    def __iter__(self) -> Iterator[Visit]:
        """Those that wait, in the order in which they would be served."""

    def join(self, visit: Visit, /, *, first: bool = False) -> None:
        """Wait from now on: `Visit.place`, the pool's own, is None no more. One whose type is not
        served here waits, too: for a neighbor. `first`, only where servers are alike: it has waited
        here before, and those that wait now came later."""

    def leave(self, visit: Visit, /) -> None:
        """Wait no longer, from any place."""

    def pop(self) -> Visit | None:
        """Take out the next one that can start now; None if none can."""

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
        """Returns what the policy is told of the servers that fit this visit, which may wait
        already; `may_keep` as far as the pool is not concerned. The rest it passes on."""

    def stay_s(self, visit: Visit, now_s: float, /) -> float:
        """Returns how long the visit will be here if it joins now, with a margin; 0 where those
        that wait do not tell."""

    def retry_after_s(self, visit: Visit, now_s: float, /) -> float:
        """Returns in what time there may be a place for the visit, which is refused now."""

    def check(self) -> None:
        """Raise AssertionError if it contradicts itself."""
