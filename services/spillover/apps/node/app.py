"""The FastAPI app of a node: the cold routes, and the hot ones' place in the OpenAPI."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlsplit

from fastapi import FastAPI, Request

from spillover.apps.http.access import Access, tenant_in
from spillover.apps.http.audit import Audit
from spillover.apps.http.cold import MadeWhenAsked, complete, new_app
from spillover.apps.http.console.operators import Operators
from spillover.apps.http.doors import Doors
from spillover.apps.http.json_body import read_json
from spillover.apps.http.openapi import describe, described_body, problems
from spillover.apps.http.problems import Problem
from spillover.apps.http.sites import WebSite
from spillover.apps.node.admin_routes import add_admin_routes, guard_of
from spillover.apps.node.answers import why_not_ready
from spillover.apps.node.config_routes import add_config_routes
from spillover.apps.node.configuration import NodeConfiguration
from spillover.apps.node.console_view import node_console
from spillover.apps.node.doors import TABLE
from spillover.apps.node.federation import (
    QUERY_LIMIT_BYTES,
    Federation,
    FederationQuery,
    GatheredStates,
)
from spillover.apps.node.hot_paths import HotPaths
from spillover.apps.node.one_face import metrics_page
from spillover.apps.node.openapi import HELLO_HEADER, tell_hot_paths
from spillover.apps.node.pages import REQUESTS, Pages
from spillover.apps.node.peer_paths import PEER_OF
from spillover.apps.node.request_routes import add_request_routes
from spillover.apps.node.session_paths import SessionPaths
from spillover.apps.node.views import (
    Explanation,
    FederationState,
    NodeState,
    explanation,
    node_state,
)
from spillover.live.membership.store import ConfigurationStore
from spillover.live.overflow.protocol import SPOKEN
from spillover.live.overflow.shell import NodeShell
from spillover.model.certified_names import same_name
from spillover.model.ids import name_of, request_id_of


def create_app(
    shell: NodeShell,
    *,
    testbed: bool = False,
    allowed_origins: frozenset[str] = frozenset(),
    store: ConfigurationStore | None = None,
    access: Access | None = None,
    config_from_peers: bool = True,
) -> HotPaths:
    """Returns the whole service of a node: hot paths in front, FastAPI behind.

    In a `testbed` operators may spoil its links. Pages of `allowed_origins` may make requests; see
    `sites`. A `store` has to take a configuration first; unless `config_from_peers`, one that
    others go by is not taken from them. With `access`, only holders of API tokens are served.
    """
    sessions = SessionPaths(shell, access)
    federation = Federation(shell)
    name = same_name(urlsplit(shell.cluster.url or "").hostname or "")
    site = WebSite(frozenset({name} if name else ()), allowed_origins)
    configuration = NodeConfiguration(shell, store, sessions.go_by, from_peers=config_from_peers)
    doors = None if access is None else Doors(access, Audit(lambda: shell.now_s), TABLE)
    operators = Operators(testbed, site.own_names, has_tokens=access is not None)
    console = node_console(shell, federation, operators)
    shell.on_close.append(console.close)

    def make() -> FastAPI:
        registry = shell.metrics.registry
        app = new_app(f"Spillover node {shell.cluster.id}", registry, metrics_page(shell))
        _add_state_routes(app, shell)
        add_request_routes(app, shell)
        _add_federation_routes(app, federation)
        add_admin_routes(app, shell, site, testbed=testbed)
        add_config_routes(app, shell, configuration, federation, guard_of(site))
        complete(app, console, REQUESTS)
        describe(app, partial(tell_hot_paths, has_tokens=access is not None))
        return app

    return HotPaths(MadeWhenAsked(make), shell, Pages(site), sessions, doors)


def _add_state_routes(app: FastAPI, shell: NodeShell) -> None:
    @app.get("/state")
    async def state() -> NodeState:
        """Returns the cluster as it is now, and what it knows of its neighbors."""
        return node_state(shell, shell.now_s)

    @app.get("/explain/{request_id:path}", responses=problems("unknown_request", "invalid"))
    async def explain(request_id: str, request: Request) -> Explanation:
        """Returns why this request was started, kept, handed on or refused here."""
        is_name_only = name_of(request_id) == request_id  # else it would be another tenant's id
        id_ = request_id_of(tenant_in(request.scope), request_id)
        found = explanation(shell, id_) if is_name_only else None
        if found is None:
            raise Problem("unknown_request", "no decision about it is remembered here", request_id)
        return found

    @app.get("/readyz", responses=problems("draining", "no_servers"))
    async def readyz() -> dict[str, str]:
        """Returns 200 while new requests are accepted. That holds even where the work run here
        fails: neighbors do it then, and what fails everywhere must not take a whole federation
        out."""
        problem = why_not_ready(shell)
        if problem is not None:
            raise problem
        return {"status": "ready", "health": shell.machine.condition}


def _add_federation_routes(app: FastAPI, federation: Federation) -> None:
    @app.get("/federation")
    async def show_federation() -> FederationState:
        """Returns all clusters that can be reached along the links, within a second, and the
        others.
        """
        return await federation.show()

    async def answer_federation(request: Request) -> GatheredStates:
        query = await read_json(request, FederationQuery, QUERY_LIMIT_BYTES)
        return await federation.answer(query, request.scope[PEER_OF]().neighbor)

    for calls in SPOKEN:
        app.post(
            calls.federation,
            summary="Between neighbors: the states of the clusters behind this one",
            openapi_extra=described_body(FederationQuery) | {"parameters": [HELLO_HEADER]},
            responses=problems("not_a_neighbor", "another_site", "invalid", "too_large"),
            include_in_schema=calls is SPOKEN[0],
        )(answer_federation)
