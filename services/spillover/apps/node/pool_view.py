"""The pages of the cold routes on a pool of unlike servers. `views` has those of all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from spillover.live.overflow.shell import NodeShell
from spillover.model.ranges import WHOLE_MAX
from spillover.model.token_orders import LONGEST_AVAILABLE

if TYPE_CHECKING:
    from spillover.core.overflow.visit import Visit
    from spillover.core.tokens.servers import TokenServers

Count = Annotated[int, Field(ge=0, le=WHOLE_MAX)]
Milliseconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class NotDoneState(BaseModel, extra="allow"):
    """A type of which a server has done none of its last jobs, though it is to serve it."""

    type: str
    how: str
    """The way in which the jobs ended. not_run: the server says that it surely did not run them;
    rejected: it says that their clients are at fault, while others do much the same; failed."""
    in_a_row: Count
    done_elsewhere: Count
    """The number of jobs of the type that other servers have done meanwhile."""
    problem: str
    """The server's last words on it."""


class ServerState(BaseModel, extra="allow"):
    """One server of a pool of unlike servers."""

    id: str
    rate: float
    state: str
    """The state of the server. up; out: an operator has taken it out; down: its handler can run
    nothing; resting: the service behind it has asked to be left alone; degraded: its work fails
    more than the others'. Unless it is up it takes no new job."""
    jobs: Count
    """The number of jobs on it now."""
    queued: Count
    """The number of jobs that wait at it, token in hand (fcfs)."""
    tokens: Count
    """The number of tokens of all its classes, which is the number of jobs that it can have."""
    not_done: list[NotDoneState] = []


class ClassState(BaseModel, extra="allow"):
    """The tokens of one class: available + held + out = limit + retiring. Of a site of several
    nodes they are those of all nodes, as far as this one knows."""

    id: str
    servers: list[str] = []
    """The servers that work on the class's jobs."""
    limit: Count
    available: Count
    held: Count
    out: Count
    """The number of tokens that are out: no server of the class takes jobs, or they come back one
    after another."""
    retiring: Count
    """The number of held tokens beyond a limit that was lowered."""
    share: Count | None = None
    """The number of tokens that are this node's; null where the site has one node."""


class TypeState(BaseModel, extra="allow"):
    """One type of jobs."""

    id: str
    classes: list[str]
    blocked: Count
    """The number of jobs that wait for a token now."""
    blocked_total: Count = 0
    """The number of jobs since the start that came and found no token."""
    arrived: Count = 0
    """The number of clients' requests of this type since the start, refused ones included."""
    work_ms: Milliseconds
    """The time in milliseconds that a job takes alone on a server of rate 1, as learned."""


class TokensState(BaseModel, extra="allow"):
    """The pool of a cluster with unlike servers."""

    discipline: str
    order: str = LONGEST_AVAILABLE
    """The rule by which a job takes one of the tokens that it could take."""
    on_block: str
    jobs: Count
    """The number of jobs on all servers."""
    blocked: Count
    """The number of jobs that wait for a token."""
    unaccounted: Count = 0
    """The number of tokens that no job holds and that are not in the bucket: anything but 0 is a
    bug."""
    servers: list[ServerState]
    classes: list[ClassState]
    types: list[TypeState]


def tokens_state(shell: NodeShell, pool: TokenServers[Visit]) -> TokensState:
    """Returns the state of a node's pool, with the counts of each type so far."""
    told, blocked = pool.told(), shell.machine.blocked
    # Requests under way are counted at each look, the others were when they ended.
    arrived = shell.requests.home.count_types()
    if shell.metrics.tokens is not None:
        arrived.update(shell.metrics.tokens.ended())
    types = [
        {**kind, "blocked_total": blocked[kind["id"]], "arrived": arrived[kind["id"]]}
        for kind in told["types"]
    ]
    return TokensState.model_validate({**told, "types": types})
