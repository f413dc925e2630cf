"""The changes that operators make: `/admin/...`. The machine and the links know what a change
means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Request
from pydantic import Field

from spillover.apps.http.json_body import StrictBody, read_json
from spillover.apps.http.openapi import described_body, problems
from spillover.apps.http.problems import Problem
from spillover.apps.http.sites import WebSite
from spillover.apps.node.one_face import tell_others
from spillover.apps.node.pool_view import TokensState, tokens_state
from spillover.apps.node.views import DELAY_MS_MAX, LinkState, NodeState, node_state
from spillover.core.overflow.events import Drain, PolicySet, Resume, TokensSet
from spillover.core.overflow.pools import site_servers, unlike_servers
from spillover.live.overflow.shell import NodeShell
from spillover.model.ids import ClusterId
from spillover.model.nearest import did_you_mean
from spillover.model.unlike_servers import TOKENS_MAX, shared_most
from spillover.policy.overflow.choosers import POLICY_NAMES

PolicyName = Annotated[str, Field(max_length=100, json_schema_extra={"enum": [*POLICY_NAMES]})]

PoolId = Annotated[str, Field(max_length=100)]


class PolicyBody(StrictBody):
    """The policy to decide by from now on. `shadow` is the policy to ask along: null for none; if
    it is left out, it stays as it is."""

    policy: PolicyName
    shadow: PolicyName | None = None


SHOWN_MAX = 8
"""The most ids that a message names before it leaves the rest out."""


class TokensBody(StrictBody):
    """The limits of classes, and the servers to take out or back in. Those that are left out stay
    as they are."""

    classes: dict[PoolId, Annotated[int, Field(ge=1, le=TOKENS_MAX)]] = Field({})
    servers: dict[PoolId, Literal["out", "in"]] = Field({})


class LinkBody(StrictBody):
    """The changes of the way to a neighbor. Values that are left out stay as they are."""

    delay_ms: Annotated[float, Field(ge=0.0, le=DELAY_MS_MAX)] | None = None
    loss: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    cut: bool | None = None


def guard_of(site: WebSite) -> list[Any]:
    """Returns the dependencies of all routes for operators: a site that an operator's browser has
    open must not operate the nodes that the browser can reach."""

    def of_no_other_site(request: Request) -> None:
        reason = site.why_not_operate(request.headers)
        if reason is not None:
            raise Problem("another_site", reason)

    return [Depends(of_no_other_site)]


def add_admin_routes(app: FastAPI, shell: NodeShell, site: WebSite, *, testbed: bool) -> None:
    """Add the routes for operators; links can be spoiled only in a `testbed`."""
    guard = guard_of(site)
    _add_link_route(app, shell, guard, testbed=testbed)
    _add_tokens_route(app, shell, guard)

    def state() -> NodeState:
        return node_state(shell, shell.now_s)

    @app.post(
        "/admin/drain",
        status_code=202,
        dependencies=guard,
        responses=problems("another_site"),
    )
    async def drain(request: Request) -> NodeState:
        """Accept nothing more from neighbors and, once balancers had the time to notice
        (`--lame-duck-s`), from clients. What waits and what clients still send goes to neighbors
        that accept; the rest of what waits is finished here."""
        shell.feed(Drain(shell.leaving.lame_duck_s))
        await tell_others(shell, request)
        return state()

    @app.post("/admin/resume", dependencies=guard, responses=problems("another_site"))
    async def resume(request: Request) -> NodeState:
        """Accept again."""
        shell.feed(Resume())
        await tell_others(shell, request)
        return state()

    @app.put(
        "/admin/policy",
        openapi_extra=described_body(PolicyBody),
        dependencies=guard,
        responses=problems("another_site", "invalid", "too_large"),
    )
    async def set_policy(request: Request) -> NodeState:
        """Decide by another overflow policy from now on, or ask another one along (`shadow`).
        Requests that wait are not decided again."""
        body = await read_json(request, PolicyBody)
        shadow = body.shadow if "shadow" in body.model_fields_set else shell.machine.shadow
        _check_policy("policy", body.policy)
        if shadow is not None:
            _check_policy("shadow", shadow)
        shell.feed(PolicySet(body.policy, shadow))
        await tell_others(shell, request, body.model_dump_json(exclude_unset=True).encode())
        return state()


def _check_policy(field: str, policy: str) -> None:
    if policy not in POLICY_NAMES:
        names, hint = ", ".join(POLICY_NAMES), did_you_mean(policy, POLICY_NAMES)
        raise Problem("invalid", f"body.{field}: expected one of {names}, got {policy!r}{hint}")


def _add_tokens_route(app: FastAPI, shell: NodeShell, guard: list[Any]) -> None:
    @app.put(
        "/admin/tokens",
        openapi_extra=described_body(TokensBody),
        dependencies=guard,
        responses=problems("servers_alike", "another_site", "invalid", "too_large"),
    )
    async def set_tokens(request: Request) -> TokensState:
        """Change limits of tokens, take servers out and back in. Requests that hold a token keep
        it; tokens beyond a limit retire when they are given back."""
        pool = unlike_servers(shell.machine.servers)
        if pool is None:
            told = f"the servers of cluster {shell.cluster.id} are alike: they have no tokens"
            raise Problem("servers_alike", told)
        body = await read_json(request, TokensBody)
        _check_known("classes", "class", body.classes, pool.class_ids)
        _check_known("servers", "server", body.servers, [server.id for server in pool.servers])
        if site_servers(pool) is not None:
            _check_shared(body.classes, shared_most(pool.discipline))
        servers_in = {server: where == "in" for server, where in body.servers.items()}
        shell.feed(TokensSet(body.classes, servers_in))
        return tokens_state(shell, pool)


def _check_shared(classes: Mapping[str, int], most: int) -> None:
    for id_, tokens in classes.items():
        if tokens > most:
            why = "nodes that share servers of discipline fcfs need single tokens"
            raise Problem("invalid", f"body.classes.{id_}: expected {most}, got {tokens}: {why}")


def _check_known(field: str, what: str, named: Iterable[str], known: Sequence[str]) -> None:
    for name in named:
        if name not in known:
            hint = did_you_mean(name, known)
            shown = ", ".join(known[:SHOWN_MAX]) + (", ..." if len(known) > SHOWN_MAX else "")
            told = f"expected the id of a {what} ({shown}), got {name!r}{hint}"
            raise Problem("invalid", f"body.{field}: {told}")


def _add_link_route(app: FastAPI, shell: NodeShell, guard: list[Any], *, testbed: bool) -> None:
    @app.put(
        "/admin/links/{neighbor}",
        openapi_extra=described_body(LinkBody),
        dependencies=guard,
        responses=problems("not_a_testbed", "another_site", "not_found", "invalid", "too_large"),
    )
    async def set_link(neighbor: str, request: Request) -> LinkState:
        """Delay, lose or cut all that leaves here for a neighbor (only with `--testbed`)."""
        if not testbed:
            raise Problem("not_a_testbed", "links can be changed where nodes run with --testbed")
        y = shell.machine.neighbors.index.get(ClusterId(neighbor))
        if y is None:
            own = shell.cluster.id
            raise Problem("not_found", f"cluster {own} has no link to {neighbor!r}")
        change = await read_json(request, LinkBody)
        delay_s = None if change.delay_ms is None else change.delay_ms / 1e3
        shell.neighborhood.emulated[y].set_faults(delay_s=delay_s, loss=change.loss, cut=change.cut)
        delay_s, loss, cut = shell.neighborhood.emulated[y].faults
        return LinkState(delay_ms=round(delay_s * 1e3, 6), loss=loss, cut=cut)
