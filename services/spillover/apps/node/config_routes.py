"""The routes `/admin/config`, by which the federation's configuration is shown and changed while it
runs, and the route by which other nodes get it."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, field_validator
from pydantic_core import PydanticCustomError

from spillover.apps.http.exchange import EXCHANGE, Exchange
from spillover.apps.http.json_body import StrictBody, read_json
from spillover.apps.http.openapi import described_body, problems
from spillover.apps.http.problems import Problem
from spillover.apps.node.configuration import NodeConfiguration
from spillover.apps.node.federation import Federation
from spillover.apps.node.openapi import HELLO_HEADER
from spillover.apps.node.views import NodeState
from spillover.core.membership.changes import filled, unusual
from spillover.inputs.topology_file import read_fields, read_topology, short_text
from spillover.live.membership.shell import NotTaken
from spillover.live.overflow.identity import HELLO, TurnedAway
from spillover.live.overflow.protocol import CONFIGURATION
from spillover.live.overflow.shell import NodeShell
from spillover.model.configuration import Configuration
from spillover.model.errors import InputError, NotDelivered
from spillover.model.ranges import VERSION_MAX
from spillover.model.topology import Topology

BODY_LIMIT_BYTES = 2 * 1024 * 1024
"""The longest body in bytes: a file of 1 MiB, as text in JSON."""

SOURCE = "body"


class ConfigBody(StrictBody):
    """The topology that all nodes are to go by, in place of the configuration of version
    `if_version`: the text of a file, or its fields."""

    if_version: Annotated[int, Field(ge=0, le=VERSION_MAX)]
    topology: Annotated[str, Field(max_length=1_048_576)] | dict[str, Any]

    @field_validator("topology", mode="before")
    @classmethod
    def _is_one_of_both(cls, given: object) -> object:
        """Refuses a value that is neither a text nor fields. Errors would otherwise name the branch
        of the union, which no caller knows."""
        if not isinstance(given, str | dict):
            expected = "expected a topology, as the text of a file or as an object"
            raise PydanticCustomError("topology_type", expected)
        return given


class LostConfiguration(BaseModel):
    """A configuration that was taken here and lost against another one, with its text for another
    try."""

    version: int
    topology: str


class ConfigState(BaseModel):
    """The configuration that the node goes by: a topology as files have it. `by` is the cluster
    whose node took it; null where it is that of the node's own file."""

    version: int
    by: str | None
    topology: str
    superseded: LostConfiguration | None = None
    removed: bool = False


class TakenConfiguration(ConfigState):
    """The configuration that the node goes by now, and lines for people on changes that are seldom
    meant."""

    unusual: list[str] = []


class PastConfiguration(BaseModel):
    """The configuration that the node has gone by since `at`, as files have it."""

    version: int
    by: str | None
    at: str
    topology: str


class ConfigHistory(BaseModel):
    """The last configurations; the newest is the first, and counts now."""

    configurations: list[PastConfiguration]


StampParts = Annotated[list[int | str], Field(min_length=3, max_length=3)]


class PeerConfiguration(BaseModel):
    """The configuration that a node goes by, as other nodes get it. `stamp` and the stamps that it
    is built on are each [version, cluster, epoch]. The topology is a text in JSON: nodes that read
    it as YAML, as a file, find the same."""

    stamp: StampParts
    topology: str
    lineage: list[StampParts] = []


FIXED = "configuration: expected a node of one process: with --processes the configuration is fixed"


def add_config_routes(
    app: FastAPI,
    shell: NodeShell,
    configuration: NodeConfiguration,
    federation: Federation,
    guard: list[Any],
) -> None:
    """Add the routes of the configuration."""

    @app.get("/admin/config", dependencies=guard, responses=problems("another_site"))
    async def config() -> ConfigState:
        """Returns the configuration that this node goes by, to be changed and put back."""
        return await _state(configuration)

    @app.get("/admin/config/history", dependencies=guard, responses=problems("another_site"))
    async def history() -> ConfigHistory:
        """Returns the configurations that this node has gone by since it started, at most the last
        ten."""
        return await _history(configuration)

    @app.put(
        "/admin/config",
        openapi_extra=described_body(ConfigBody),
        dependencies=guard,
        responses=problems(
            "another_site", "invalid", "version_conflict", "store_unreachable", "too_large"
        ),
    )
    async def set_config(request: Request) -> TakenConfiguration:
        """Have all nodes go by another topology, without a restart. A value that cannot change
        while nodes run is refused by its name, and nothing changes then."""
        if shell.shares_address:
            raise Problem("invalid", FIXED)
        body = await read_json(request, ConfigBody, BODY_LIMIT_BYTES)
        try:
            before = configuration.current.topology
            topology, told = await configuration.beside(lambda: _read(body, before))
            told += await _left_with_work(before, topology, federation)
            await configuration.propose(body.if_version, topology)
        except InputError as error:
            raise _invalid(error.field, error.expected) from None
        except NotTaken as error:
            raise _refusal(error) from None
        return TakenConfiguration(**dict(await _state(configuration)), unusual=told)

    _add_route_of_peers(app, shell, configuration)


def _add_route_of_peers(app: FastAPI, shell: NodeShell, configuration: NodeConfiguration) -> None:
    @app.get(
        CONFIGURATION,
        summary="Between nodes: what this one goes by",
        openapi_extra={"parameters": [HELLO_HEADER]},
        responses={
            200: {"model": PeerConfiguration},
            **problems("not_a_neighbor", "not_ready"),
        },
    )
    async def tell(request: Request) -> Response:
        exchange: Exchange = request.scope[EXCHANGE]
        hello = dict(exchange.headers).get(HELLO)
        try:
            said = configuration.told_to(exchange.connection, hello)
        except TurnedAway as error:
            headers = shell.neighborhood.peers.who_this_is()
            raise Problem("not_a_neighbor", str(error), headers=headers) from None
        except NotDelivered as error:
            raise Problem("not_ready", str(error)) from None
        return Response(said, media_type="application/json")


def _read(body: ConfigBody, before: Topology) -> tuple[Topology, list[str]]:
    """Returns the topology of a body, and lines on changes that are seldom meant. Raises
    InputError."""
    if isinstance(body.topology, str):
        topology = read_topology(body.topology, SOURCE, before.name)
    else:
        topology = read_fields(body.topology, SOURCE, before.name)
    return topology, unusual(before, filled(before, topology))


async def _left_with_work(before: Topology, after: Topology, federation: Federation) -> list[str]:
    """Returns a line for each cluster that is removed and has work, or may have."""
    lines = []
    gone = sorted(set(before.cluster_ids) - set(after.cluster_ids))
    states = (await federation.show()).clusters if gone else {}
    for name in gone:
        state = states.get(name)
        if not isinstance(state, NodeState):
            lines.append(f"cluster {name} is removed, and cannot be asked whether it has work")
        elif state.busy or state.queue_length:
            work = f"{state.busy} running, {state.queue_length} waiting"
            lines.append(f"cluster {name} is removed, and has work: {work}")
    return lines


def _refusal(error: NotTaken) -> Problem:
    refused = error.refused
    if refused.field:
        return _invalid(refused.field, refused.detail)
    more: dict[str, object] = {"version": refused.current.version, "by": refused.current.cluster}
    return Problem(refused.reason.value, refused.detail, more=more)


def _invalid(field: str, expected: str) -> Problem:
    where = f"topology.{field}" if field else "topology"
    return Problem("invalid", f"body.{where}: {expected}")


async def _state(configuration: NodeConfiguration) -> ConfigState:
    current, lost = configuration.current, configuration.superseded
    removed = configuration.member.removed
    told = await configuration.beside(lambda: _text_of(current))
    superseded = None
    if lost is not None:
        told_lost = await configuration.beside(lambda: _text_of(lost))
        superseded = LostConfiguration(version=lost.stamp.version, topology=told_lost)
    return ConfigState(
        version=current.stamp.version,
        by=current.stamp.cluster or None,
        topology=told,
        superseded=superseded,
        removed=removed,
    )


async def _history(configuration: NodeConfiguration) -> ConfigHistory:
    known = list(configuration.history)
    texts = [await configuration.beside(partial(_text_of, one)) for _, one in known]
    told = [
        PastConfiguration(
            version=one.stamp.version,
            by=one.stamp.cluster or None,
            at=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            topology=text,
        )
        for (at, one), text in zip(known, texts, strict=True)
    ]
    return ConfigHistory(configurations=told)


def _text_of(configuration: Configuration) -> str:
    """Returns the text of a configuration with its version, by which it can be set again."""
    return short_text(configuration.with_version())
