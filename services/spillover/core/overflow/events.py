"""The events that go into the machine of a cluster, and the commands that come out.

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
    """The known part of an answer when it begins, with the fields that `Answer` has for all of it.
    `service_s` is the time to its head."""

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
    """The head of an answer that passes through is there (decision 0043).

    It is that of a service here, after `service_s`, or of a request that is away. In the second
    case `so_far` is what the neighbor says it took, without the way there, which is `leg_s`. The
    end comes as ever. The end of a service that has failed states an `upstream_status` only if the
    answer came whole.
    """

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
    """The status with which the service behind the handler refused or failed the work; None where
    there is no such service."""
    upstream_body: Any = None
    """The body of that answer, as JSON."""
    retry_after_s: float | None = None
    cause: Cause | None = field(default=None, compare=False)
    """The cause for which the work is not done, for logs and metrics: nothing is decided by it."""
    upstream: str | None = field(default=None, compare=False)
    """The service behind the handler that ran the work; None where there is none."""
    ran: RanAt | None = field(default=None, compare=False)
    """The place behind the handler where the work ran, for the answer to a neighbor; None where
    there is no affinity."""
    said_no: bool = False
    """Whether the service refused in an answer that is passed on all the same, such as a 429. That
    is no good end where the number of servers is learned."""


@dataclass(slots=True)
class NotStarted(Event):
    """The work of a Start was not done, so that the request is decided again.

    It surely was not done; or it `may_have_run`, of a request that may run twice, which is borne
    once. If that is for want of servers, ServersDown comes first. If the service has `refused` the
    work, that counts as a failure of `service_s`. `retry_after_s`, if given, is how long nothing is
    to be started. With an `upstream_status` the refusal is an answer that can be passed on, where
    nobody else takes the request.
    """

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
    """The part of the way there, in seconds, until a connection was open. The next request will
    find one."""
    size_bytes: int = 0
    """The size of the answer, where that is known."""


@dataclass(slots=True)
class ForwardRefused(Event):
    """The neighbor surely did not accept: it refused, perhaps with its `load`, or could not be
    reached."""

    ref: int
    load: LoadNow | None = None
    upstream_status: int | None = None
    """The status by which the neighbor's service has refused the work; None if it has not."""


@dataclass(slots=True)
class ForwardLost(Event):
    """The request had left, and no answer will come, or no more of one that has begun. The request
    may have run there."""

    ref: int
    cause: Cause | None = field(default=None, compare=False)
    """The cause that the neighbor tells; None if it tells none."""
    problem: str | None = field(default=None, compare=False)
    """The reason in words, from the neighbor or the reader of its answer; None where it is only
    known that nothing more comes."""


@dataclass(slots=True)
class Cancelled(Event):
    """Nobody waits for the answer any more: the client or the neighbor that sent it has gone."""

    ref: int


@dataclass(slots=True)
class CancelAsked(Event):
    """Cancel the request wherever it is; the Reply tells how it ended. A request that is away stays
    away until the neighbor has answered."""

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
    """The group of types that is asked for, and to which `load` applies; empty where there is only
    one."""


@dataclass(slots=True)
class NoWorkThere(Event):
    """A neighbor that was asked has no work for this cluster."""

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
    """A neighbor has begun to listen, and must not wait a whole period for a report."""


@dataclass(slots=True)
class LinkDown(Event):
    """The neighbor's stream of reports has ended."""

    neighbor: int


@dataclass(slots=True)
class TimerFired(Event):
    """The time given by next_deadline() has come."""


@dataclass(slots=True)
class BytesMoving(Event):
    """The bytes that are being read, or that others have not read yet: bodies of requests that are
    not accepted yet, answers on their way here, answers on their way to clients."""

    count: int
    wanted: int = 0
    """The size of a neighbor's request that was not read for want of room."""


@dataclass(slots=True)
class HeldUp(Event):
    """This process came `late_s` too late to hear what neighbors have said meanwhile: it was
    stopped, or had no CPU time. This event precedes those with which it is late."""

    late_s: float


@dataclass(slots=True)
class Drain(Event):
    """An operator has the cluster drain.

    It accepts nothing more from neighbors, nor from clients once the lame duck is over. Then it
    hands what waits and still comes to neighbors that accept, and finishes the rest.
    """

    lame_duck_s: float = 0.0


@dataclass(slots=True)
class Resume(Event):
    """An operator has the cluster accept again."""


@dataclass(slots=True)
class EngineSaid(Event):
    """The engines that run the work have reported their load; None where they have been silent for
    long. This comes only where the number of servers is learned."""

    load: EngineLoad | None


@dataclass(slots=True)
class ServersDown(Event):
    """The servers here cannot run any request for now (all upstreams of `http:` are gone). `server`
    is the number of the one that cannot; None stands for all of them."""

    server: int | None = None


@dataclass(slots=True)
class ServersUp(Event):
    """The servers, or the one with this number, can run requests again."""

    server: int | None = None


@dataclass(slots=True)
class TokensSet(Event):
    """An operator has changed limits, by the id of the class, or taken servers out or back in
    (True), by the id of the server. The ids exist. This comes only where servers are unlike."""

    limits: dict[str, int]
    servers_in: dict[str, bool]


@dataclass(slots=True)
class PolicySet(Event):
    """An operator has changed the policy, and the one that is asked along; the names exist."""

    policy: str
    shadow: str | None = None


@dataclass(slots=True)
class Join(Event):
    """A cluster becomes a neighbor, over a link of this one-way delay; with a `ramp`, it is given
    little at first. A neighbor that is being parted from stays, and goes on as before, without a
    `Connect`."""

    cluster: ClusterId
    delay_s: float
    ramp: bool = False


@dataclass(slots=True)
class Part(Event):
    """A neighbor is to leave. It is given nothing more, and is still heard and answered until
    neither has anything of the other; `Disconnect` says when that is."""

    neighbor: int


@dataclass(slots=True)
class DelayChanged(Event):
    """The link to a neighbor has this one-way delay from now on."""

    neighbor: int
    delay_s: float


@dataclass(slots=True)
class SettingsChanged(Event):
    """The configuration has other limits; None stands for one that stays. Requests that are here
    stay all the same. `servers` and `nodes` are allowed only where servers are alike; elsewhere
    `SettingsRefused` follows, and nothing changes."""

    servers: int | None = None
    nodes: int | None = None
    queue_limit: int | None = None
    held_limit_bytes: int | None = None
    max_hops: int | None = None


@dataclass(slots=True)
class Removed(Event):
    """The configuration no longer has this cluster: it drains, whatever operators say, and parts
    from all neighbors once it has drained."""

    lame_duck_s: float = 0.0


@dataclass(slots=True)
class Restored(Event):
    """The configuration has this cluster again: it accepts, unless an operator has it drain."""


@dataclass(slots=True)
class Confirmed(Event):
    """A `Confirm` was carried out: the request will not be lost."""

    ref: int


@dataclass(slots=True)
class NotConfirmed(Event):
    """A `Confirm` cannot be carried out: the request is not accepted, for this reason."""

    ref: int
    reason: Refusal


# --- commands ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Confirm(Command):
    """The request is about to be accepted. `Confirmed` is to follow once that is safe, or
    `NotConfirmed`; no other command about the request comes before. Only a machine that asks gives
    this (`confirming`)."""

    ref: int
    request: Request
    origin: int
    deadline_s: float


@dataclass(slots=True)
class Accepted(Command):
    """The request is this cluster's from here on. This precedes all other commands about it."""

    ref: int


@dataclass(slots=True)
class Refuse(Command):
    """The request is not accepted. `retry_after_s` estimates when a place will be free. `load` is
    for a neighbor; None where it gets none."""

    ref: int
    origin: int
    reason: Refusal
    retry_after_s: float
    load: LoadNow | None = None
    types: tuple[str, ...] = ()
    """The types that are served; empty unless the request's type is not."""
    upstream_status: int | None = None
    """The status by which the service here has refused the work of a neighbor's request; None if it
    has not."""


@dataclass(slots=True)
class Start(Command):
    """Run the request on a server. `at_s` is when its service begins; `server` is the server's
    number, 0 where all are alike."""

    ref: int
    request: Request
    at_s: float
    deadline_s: float
    server: int = 0


@dataclass(slots=True)
class AskService(Command):
    """Ask the service whether it is well, beside all work: `ServiceAsked` follows. This comes only
    where there is a request for that (`NodeSettings.asks`)."""


@dataclass(slots=True)
class Stop(Command):
    """Stop running the request, if that can be done. In any case ServiceEnded says when the server
    is free."""

    ref: int


@dataclass(slots=True)
class Began(Command):
    """The answer passes on from now on, as it comes. Nothing more is decided about the request: the
    Reply says whether the answer came whole."""

    ref: int
    origin: int
    so_far: SoFar


@dataclass(slots=True)
class Forward(Command):
    """Hand the request to a neighbor. `request.path` already ends with this cluster. `load` is the
    own one; None where the neighbor gets none. `pulled` says that the neighbor has asked for
    work."""

    ref: int
    neighbor: int
    request: Request
    deadline_s: float
    load: LoadNow | None = None
    pulled: bool = False


@dataclass(slots=True)
class Recall(Command):
    """Cancel this forward at the neighbor: its answer is no longer wanted."""

    ref: int
    neighbor: int


@dataclass(slots=True)
class AskCancel(Command):
    """Have the neighbor cancel this forward; its answer, which is still waited for, says how it
    ended."""

    ref: int
    neighbor: int


@dataclass(slots=True)
class Reply(Command):
    """Give the answer to the sender of the request, `delay_s` from now (delivery, emulated)."""

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
    """Tell a neighbor that a server is idle here: it gets `WorkAsked`. A forward follows, or
    `NoWorkThere`."""

    neighbor: int
    load: LoadNow
    group: str = ""


@dataclass(slots=True)
class NoWork(Command):
    """Tell a neighbor that has asked that there is no work for it: it gets `NoWorkThere`."""

    neighbor: int
    load: LoadNow
    group: str = ""


@dataclass(slots=True)
class TellSibling(Command):
    """Send a message to another node of the site, which gets `SiblingHeard`, in order, if it
    listens."""

    sibling: int
    message: SiblingMessage


@dataclass(slots=True)
class Heartbeat(Command):
    """Send a sign of life to every neighbor, where reports are further apart than beats."""


@dataclass(slots=True)
class Connect(Command):
    """A cluster has joined under this handle: listen to its reports, and send it those of this
    cluster."""

    neighbor: int
    cluster: ClusterId


@dataclass(slots=True)
class JoinRefused(Command):
    """A cluster cannot join, for this `reason`."""

    cluster: ClusterId
    reason: str


@dataclass(slots=True)
class SettingsRefused(Command):
    """The settings stay as they were, for this `reason`."""

    reason: str


@dataclass(slots=True)
class Distrust(Command):
    """Break off the stream of a neighbor whose message made the machine raise. The message was
    dropped, and the neighbor is unknown until it reports anew. Only a machine that `spares_node`
    commands this."""

    neighbor: int
    error: Exception


@dataclass(slots=True)
class DistrustSibling(Command):
    """Break off another node of the site whose message made the machine raise. That node is lost
    until it is heard anew."""

    sibling: int
    error: Exception


@dataclass(slots=True)
class Disconnect(Command):
    """A neighbor has left: give up what is away there (`link.Disconnected`), and end the streams of
    reports."""

    neighbor: int
