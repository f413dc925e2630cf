"""What the cold routes show of a pool of unlike servers. What all nodes show is in `views`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from spillover.live.overflow.shell import NodeShell
from spillover.model.ranges import WHOLE_MAX
from spillover.model.token_orders import LONGEST_AVAILABLE

if TYPE_CHECKING:
    from spillover.core.overflow.visit import Visit
    from spillover.core.tokens.servers import TokenServers

Count = Annotated[int, Field(ge=0, le=WHOLE_MAX)]
Milliseconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class NotDoneState(BaseModel):
    """A type of which a server has done none of its last jobs, though it is to serve it."""

    model_config = ConfigDict(extra="allow")

    type: str
    how: str
    """not_run: it says that it surely did not run them; rejected: that their clients are at fault,
    while others do what is about the same; failed."""
    in_a_row: Count
    done_elsewhere: Count
    """Jobs of the type that other servers have done meanwhile."""
    problem: str
    """What it said last."""


class ServerState(BaseModel):
    """One server of a pool of unlike servers."""

    model_config = ConfigDict(extra="allow")

    id: str
    rate: float
    state: str
    """up; out: an operator has taken it out; down: its handler can run nothing; resting: what runs
    its jobs has asked to be left alone; degraded: its work fails more than the others'. Unless it
    is up it takes no new job."""
    jobs: Count
    """The jobs on it now."""
    queued: Count
    """Those that wait at it, token in hand (fcfs)."""
    tokens: Count
    """The tokens of all its classes: the number of jobs that it can have."""
    not_done: list[NotDoneState] = []


class ClassState(BaseModel):
    """The tokens of one class: available + held + out = limit + retiring."""

    model_config = ConfigDict(extra="allow")

    id: str
    servers: list[str] = []
    """Those that work on its jobs."""
    limit: Count
    available: Count
    held: Count
    out: Count
    """No server of the class takes jobs, or they come back one after another."""
    retiring: Count
    """Held ones that are too many since the limit was lowered."""


class TypeState(BaseModel):
    """One type of jobs."""

    model_config = ConfigDict(extra="allow")

    id: str
    classes: list[str]
    blocked: Count
    """Those that wait for a token now."""
    blocked_total: Count = 0
    """Those that came and found no token, since the start."""
    arrived: Count = 0
    """Clients' requests of this type since the start, those too that were refused."""
    work_ms: Milliseconds
    """What one takes alone on a server of rate 1, as learned."""


class TokensState(BaseModel):
    """The pool of a cluster with unlike servers."""

    model_config = ConfigDict(extra="allow")

    discipline: str
    order: str = LONGEST_AVAILABLE
    """The rule by which a job takes one of the tokens that it could take."""
    on_block: str
    jobs: Count
    """The jobs on all servers."""
    blocked: Count
    """Those that wait for a token."""
    unaccounted: Count = 0
    """Tokens that no job holds and that are not in the bucket: anything but 0 is a bug."""
    servers: list[ServerState]
    classes: list[ClassState]
    types: list[TypeState]


def tokens_state(shell: NodeShell, pool: TokenServers[Visit]) -> TokensState:
    """Returns the state of a node's pool, with what came of each type so far."""
    told, blocked = pool.told(), shell.machine.blocked
    # Those that are under way are counted when somebody asks, the others were as they ended.
    arrived = shell.requests.home.count_types()
    if shell.metrics.tokens is not None:
        arrived.update(shell.metrics.tokens.ended())
    types = [
        {**kind, "blocked_total": blocked[kind["id"]], "arrived": arrived[kind["id"]]}
        for kind in told["types"]
    ]
    return TokensState.model_validate({**told, "types": types})
