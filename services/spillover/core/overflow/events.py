"""What goes into the machine of a cluster (events) and what comes out (commands).

`ref` names one visit of a request to this cluster; the shell makes it, never twice. A request that
comes by again is another visit. Neighbors are named by their handles (`neighbors`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spillover.core.overflow.sibling_messages import SiblingMessage
from spillover.model.affinity import RanAt
from spillover.model.causes import Cause
from spillover.model.engine_load import EngineLoad
from spillover.model.ids import ClusterId
from spillover.model.load import LoadNow, LoadReport
from spillover.model.request import Answer, Outcome, Refusal, Request

HOME = -1
"""The origin of a client's request, in place of a neighbor: this cluster is its home."""


class Event:
    """Base of all events."""

    __slots__ = ()


class Command:
    """Base of all commands."""

    __slots__ = ()


class SoFar(NamedTuple):
    """The known part of an answer when it begins, as `Answer` has it for all of it: `service_s` is
    the time to its head."""

    path: tuple[ClusterId, ...]
    queued_s: float
    network_s: float
    service_s: float


# --- events -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Arrived(Event):
    """A request has come in, from a client (`origin` is HOME) or from a neighbor, perhaps with the
    neighbor's `load`. `pulled` says that this cluster has asked for it."""

    ref: int
    request: Request
    deadline_s: float
    origin: int = HOME
    load: LoadNow | None = None
    pulled: bool = False


@dataclass(slots=True)
class ResponseBegan(Event):
    """The head of an answer that passes through is there (decision 0043): of a service here, after
    `service_s`, or of what is away. Then the neighbor has told what it took `so_far`, without the
    way there, `leg_s`. The end comes as ever; that of a service which has failed tells an
    `upstream_status` only if the answer came whole."""

    ref: int
    service_s: float = 0.0
    so_far: SoFar | None = None
    leg_s: float = 0.0


@dataclass(slots=True)
class ServiceEnded(Event):
    """A server is free again; `outcome` is DONE, FAILED or CANCELLED (after a Stop)."""

    ref: int
    outcome: Outcome
    service_s: float
    result: Any = None
    problem: str | None = None
    upstream_status: int | None = None
    """The status of the service behind the handler, where there is one and it said no."""
    upstream_body: Any = None
    """The rest of that answer, as JSON."""
    retry_after_s: float | None = None
    cause: Cause | None = field(default=None, compare=False)
    """The cause for which it is not done, for logs and metrics: nothing is decided by it."""
    upstream: str | None = field(default=None, compare=False)
    """The service that ran it, where there is one behind the handler."""
    ran: RanAt | None = field(default=None, compare=False)
    """The place behind the handler where it ran, where there is affinity: for the answer to a
    neighbor."""
    said_no: bool = False
    """Whether the service said no in an answer that is passed on all the same, such as a 429: that
    is no good end where the number of servers is learned."""


@dataclass(slots=True)
class NotStarted(Event):
    """The work of a Start surely was not done, or `may_have_run` of a request that may run twice,
    which is borne once: the request is decided again. Where that is for want
    of servers, ServersDown comes first. Where what runs the work has `refused` it, that counts as a
    failure of `service_s`. `retry_after_s`, if given, is how long nothing is to be started. With an
    `upstream_status` that refusal is an answer that can be passed on, where nobody else takes the
    request."""

    ref: int
    problem: str
    refused: bool = False
    service_s: float = 0.0
    retry_after_s: float | None = None
    upstream_status: int | None = None
    may_have_run: bool = False
    cause: Cause | None = field(default=None, compare=False)


@dataclass(slots=True)
class ServiceAsked(Event):
    """The service has answered an `AskService`: it is well, or it is not."""

    is_well: bool


@dataclass(slots=True)
class ForwardAnswered(Event):
    """The neighbor has answered; `leg_s` is the way there and `return_leg_s` the way back."""

    ref: int
    answer: Answer
    leg_s: float
    return_leg_s: float
    opening_s: float = 0.0
    """The time of the way there until a connection was open. The next request will find one."""


@dataclass(slots=True)
class ForwardRefused(Event):
    """The neighbor surely did not accept: it refused, with its `load` if it tells that, or could
    not be reached."""

    ref: int
    load: LoadNow | None = None
    upstream_status: int | None = None
    """The status by which the neighbor's service has refused the work; None if it has not."""


@dataclass(slots=True)
class ForwardLost(Event):
    """The request had left and no answer will come, or no more of one that has begun: it may have
    run there."""

    ref: int
    cause: Cause | None = field(default=None, compare=False)
    """The cause that the neighbor tells, if it does."""
    problem: str | None = field(default=None, compare=False)
    """The reason in words, of the neighbor or of what reads its answer; None where it is only known
    that nothing more comes."""


@dataclass(slots=True)
class Cancelled(Event):
    """Nobody waits for the answer any more: the client or the neighbor that sent it has gone."""

    ref: int


@dataclass(slots=True)
class CancelAsked(Event):
    """Cancel the request wherever it is; the Reply tells how it ended. What is away stays so until
    the neighbor has told."""

    ref: int


@dataclass(slots=True)
class ReportReceived(Event):
    """A sign of life from a neighbor, with a report or without one."""

    neighbor: int
    report: LoadReport | None


@dataclass(slots=True)
class WorkAsked(Event):
    """A neighbor has an idle server, and asks for work that waits here."""

    neighbor: int
    load: LoadNow
    group: str = ""
    """The group of types that is asked for, and whose `load` this is; empty where there is one."""


@dataclass(slots=True)
class NoWorkThere(Event):
    """A neighbor that was asked has no work that should come here."""

    neighbor: int
    load: LoadNow
    group: str = ""


@dataclass(slots=True)
class SiblingHeard(Event):
    """Another node of the site has said something."""

    sibling: int
    message: SiblingMessage


@dataclass(slots=True)
class SiblingLost(Event):
    """The stream of another node of the site has ended, or could not be opened."""

    sibling: int
    is_dead: bool = False
    """True where nothing listens at its address: it runs no more."""


@dataclass(slots=True)
class ReportAsked(Event):
    """A neighbor has begun to listen: it must not wait a whole period to know."""


@dataclass(slots=True)
class LinkDown(Event):
    """The neighbor's stream of reports has ended."""

    neighbor: int


@dataclass(slots=True)
class TimerFired(Event):
    """The time given by next_deadline() has come."""


@dataclass(slots=True)
class BytesMoving(Event):
    """So many bytes are being read or not yet read by others: bodies of requests that are not
    accepted yet, answers on their way here, answers on their way to clients."""

    count: int
    wanted: int = 0
    """The size of a neighbor's request that was not read for want of room."""


@dataclass(slots=True)
class HeldUp(Event):
    """This process came `late_s` too late to hear what neighbors have said meanwhile: it was
    stopped, or had no CPU time. Told before what it is late with."""

    late_s: float


@dataclass(slots=True)
class Drain(Event):
    """An operator has the cluster drain. It accepts nothing more of neighbors, and of clients when
    the lame duck is over; then it hands what waits and still comes to neighbors that accept, and
    finishes the rest."""

    lame_duck_s: float = 0.0


@dataclass(slots=True)
class Resume(Event):
    """An operator has the cluster accept again."""


@dataclass(slots=True)
class EngineSaid(Event):
    """What runs the work has said how much of it there is; None where it has said nothing for long.
    Only where the number of servers is learned."""

    load: EngineLoad | None


@dataclass(slots=True)
class ServersDown(Event):
    """The servers here cannot run any request for now (all upstreams of `http:` are gone); `server`
    is the number of the one that cannot, None for all of them."""

    server: int | None = None


@dataclass(slots=True)
class ServersUp(Event):
    """The servers, or this one, can run requests again."""

    server: int | None = None


@dataclass(slots=True)
class TokensSet(Event):
    """An operator has changed limits, by the id of the class, or taken servers out or back in
    (True), by theirs; ids that exist. Only where the pool is one of unlike servers."""

    limits: dict[str, int]
    servers_in: dict[str, bool]


@dataclass(slots=True)
class PolicySet(Event):
    """An operator has changed the policy, and which one is asked along; names that exist."""

    policy: str
    shadow: str | None = None


@dataclass(slots=True)
class Join(Event):
    """A cluster becomes a neighbor, over a link of this one-way delay; with a `ramp`, it is given
    little at first. One that is being parted from stays, and goes on as before: no `Connect`."""

    cluster: ClusterId
    delay_s: float
    ramp: bool = False


@dataclass(slots=True)
class Part(Event):
    """A neighbor is to be none: it is given nothing more, and still heard and answered, until
    nothing is left there or from there. `Disconnect` tells when that is."""

    neighbor: int


@dataclass(slots=True)
class DelayChanged(Event):
    """The link to a neighbor has this one-way delay from now on."""

    neighbor: int
    delay_s: float


@dataclass(slots=True)
class SettingsChanged(Event):
    """The configuration has other limits; None where one stays. Nobody who is here is sent away by
    them. `servers` and `nodes` only where servers are alike, else `SettingsRefused`, and nothing
    changes."""

    servers: int | None = None
    nodes: int | None = None
    queue_limit: int | None = None
    held_limit_bytes: int | None = None
    max_hops: int | None = None


@dataclass(slots=True)
class Removed(Event):
    """The configuration has this cluster no more: it drains, whatever operators say, and parts from
    all neighbors once it has drained."""

    lame_duck_s: float = 0.0


@dataclass(slots=True)
class Restored(Event):
    """The configuration has it again: it accepts, unless an operator has it drain."""


@dataclass(slots=True)
class Confirmed(Event):
    """A `Confirm` is carried out: the request will not be lost."""

    ref: int


@dataclass(slots=True)
class NotConfirmed(Event):
    """A `Confirm` cannot be carried out: the request is not accepted, for this reason."""

    ref: int
    reason: Refusal


# --- commands ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Confirm(Command):
    """The request is about to be accepted: tell `Confirmed` once that is safe, or `NotConfirmed`;
    nothing else is told of it before. Only of a machine that asks (`confirming`)."""

    ref: int
    request: Request
    origin: int
    deadline_s: float


@dataclass(slots=True)
class Accepted(Command):
    """The request is this cluster's from here on; comes before anything that is told of it."""

    ref: int


@dataclass(slots=True)
class Refuse(Command):
    """The request is not accepted. `retry_after_s` estimates when a place will be free. `load` is
    for a neighbor, None where none is told."""

    ref: int
    origin: int
    reason: Refusal
    retry_after_s: float
    load: LoadNow | None = None
    types: tuple[str, ...] = ()
    """The types that are served, where the request's is not."""
    upstream_status: int | None = None
    """The status by which the service here has refused the work of a neighbor's request; None if it
    has not."""


@dataclass(slots=True)
class Start(Command):
    """Run the request on a server; `at_s` is when its service begins. `server` is its number, 0
    where all are alike."""

    ref: int
    request: Request
    at_s: float
    deadline_s: float
    server: int = 0


@dataclass(slots=True)
class AskService(Command):
    """Ask what runs the work whether it is well, beside all work: `ServiceAsked` tells. Only where
    there is a request for that (`NodeSettings.asks`)."""


@dataclass(slots=True)
class Stop(Command):
    """Stop running, if that can be done. In any case ServiceEnded tells when the server is free."""

    ref: int


@dataclass(slots=True)
class Began(Command):
    """The answer passes on from now on, as it comes. Nothing is decided about the request any more:
    the Reply tells whether the answer came whole."""

    ref: int
    origin: int
    so_far: SoFar


@dataclass(slots=True)
class Forward(Command):
    """Hand the request to a neighbor; `request.path` already ends with this cluster. `load` is the
    own one, None where none is told; `pulled`: the neighbor has asked for it."""

    ref: int
    neighbor: int
    request: Request
    deadline_s: float
    load: LoadNow | None = None
    pulled: bool = False


@dataclass(slots=True)
class Recall(Command):
    """The answer to this forward is no longer wanted: cancel it at the neighbor."""

    ref: int
    neighbor: int


@dataclass(slots=True)
class AskCancel(Command):
    """Have the neighbor cancel this forward; its answer, still waited for, says what came of it."""

    ref: int
    neighbor: int


@dataclass(slots=True)
class Reply(Command):
    """Give the answer to whoever sent the request, `delay_s` from now (delivery, emulated)."""

    ref: int
    origin: int
    answer: Answer
    delay_s: float


@dataclass(slots=True)
class Publish(Command):
    """Tell every neighbor this report."""

    report: LoadReport


@dataclass(slots=True)
class AskForWork(Command):
    """Tell a neighbor that a server is idle here: `WorkAsked` there. What comes of it is a forward,
    or `NoWorkThere`."""

    neighbor: int
    load: LoadNow
    group: str = ""


@dataclass(slots=True)
class NoWork(Command):
    """Tell a neighbor that has asked that there is nothing for it: `NoWorkThere` there."""

    neighbor: int
    load: LoadNow
    group: str = ""


@dataclass(slots=True)
class TellSibling(Command):
    """Tell another node of the site: `SiblingHeard` there, in order, if it listens."""

    sibling: int
    message: SiblingMessage


@dataclass(slots=True)
class Heartbeat(Command):
    """A sign of life to every neighbor, where reports are further apart than beats."""


@dataclass(slots=True)
class Connect(Command):
    """A cluster has joined, and this is its handle: listen to its reports, and tell it ours."""

    neighbor: int
    cluster: ClusterId


@dataclass(slots=True)
class JoinRefused(Command):
    """A cluster cannot join; why, in words."""

    cluster: ClusterId
    reason: str


@dataclass(slots=True)
class SettingsRefused(Command):
    """The settings stay as they were; why, in words."""

    reason: str


@dataclass(slots=True)
class Distrust(Command):
    """A neighbor's message made the machine raise. It was dropped, and the neighbor is unknown
    until it reports anew: break its stream off. Only a machine that `spares_node` commands this."""

    neighbor: int
    error: Exception


@dataclass(slots=True)
class DistrustSibling(Command):
    """A message of another node of the site made the machine raise: that node is lost until it is
    heard anew."""

    sibling: int
    error: Exception


@dataclass(slots=True)
class Disconnect(Command):
    """A neighbor has left: give up what is away there (`link.Disconnected`), and end the streams of
    reports."""

    neighbor: int
