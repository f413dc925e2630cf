"""The FastAPI app of a node: the cold routes, and the hot ones' place in the OpenAPI."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from spillover import __version__
from spillover.apps.http.api_docs.routes import add_api_docs
from spillover.apps.http.heads import HeadAsGet
from spillover.apps.http.sites import Site
from spillover.apps.node.admin_routes import add_admin_routes
from spillover.apps.node.console_view import node_console
from spillover.apps.node.exposure import AsgiApp
from spillover.apps.node.federation import (
    QUERY_LIMIT_BYTES,
    Federation,
    FederationQuery,
    GatheredStates,
)
from spillover.apps.node.hot_paths import HotPaths
from spillover.apps.node.json_body import described_body, read_json
from spillover.apps.node.nearby import nearest_path
from spillover.apps.node.openapi import HELLO_HEADER, add_hot_paths, problems
from spillover.apps.node.pages import Pages
from spillover.apps.node.peer_paths import PEER_OF
from spillover.apps.node.problems import Problem
from spillover.apps.node.request_routes import add_request_routes
from spillover.apps.node.views import (
    Explanation,
    FederationState,
    NodeState,
    explanation,
    node_state,
)
from spillover.live.overflow import wire
from spillover.live.overflow.protocol import SPOKEN
from spillover.live.overflow.shell import NodeShell

_REASON_BY_STATUS = {404: "not_found", 405: "method_not_allowed"}


def create_app(
    shell: NodeShell, *, testbed: bool = False, allowed_origins: frozenset[str] = frozenset()
) -> AsgiApp:
    """Returns the whole service of a node: hot paths in front, FastAPI behind. In a `testbed`
    operators may spoil its links. Pages of `allowed_origins` may make requests; see `sites`.
    """
    app = FastAPI(
        title=f"Spillover node {shell.cluster.id}",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _add_state_routes(app, shell)
    add_request_routes(app, shell)
    federation = Federation(shell)
    _add_federation_routes(app, federation)
    name = urlsplit(shell.cluster.url or "").hostname
    site = Site(frozenset({name} if name else ()), allowed_origins)
    add_admin_routes(app, shell, site, testbed=testbed)
    app.state.console = node_console(shell, federation, site.own_names, testbed=testbed)
    app.state.console.mount(app)
    shell.on_close.append(app.state.console.close)
    add_api_docs(app)
    _add_problem_handlers(app)
    app.add_middleware(HeadAsGet)
    add_hot_paths(app)
    return HotPaths(app, shell, Pages(site))


def _add_state_routes(app: FastAPI, shell: NodeShell) -> None:
    @app.get("/state")
    async def state() -> NodeState:
        """Returns the cluster as it is now, and what it knows of its neighbors."""
        return node_state(shell, shell.now_s)

    @app.get("/explain/{request_id:path}", responses=problems("unknown_request", "invalid"))
    async def explain(request_id: str) -> Explanation:
        """Returns why this request was started, kept, handed on or refused here."""
        found = explanation(shell, request_id)
        if found is None:
            raise Problem("unknown_request", "no decision about it is remembered here", request_id)
        return found

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """200 as long as the process can answer."""
        return {"status": "ok"}

    @app.get("/readyz", responses=problems("draining", "no_servers"))
    async def readyz() -> dict[str, str]:
        """200 while new requests are accepted. Also where the work run here fails: neighbors do it
        then, and what fails everywhere must not take a whole federation out."""
        if shell.machine.draining:
            raise Problem("draining", "the cluster is draining")
        if shell.machine.servers.down and not any(shell.machine.neighbors.accepting):
            raise Problem("no_servers", "nothing here runs requests, and no neighbor takes them")
        return {"status": "ready", "health": shell.machine.condition}

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(
            generate_latest(shell.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST}
        )


def _add_federation_routes(app: FastAPI, federation: Federation) -> None:
    @app.get("/federation")
    async def show_federation() -> FederationState:
        """Returns all clusters that can be reached along the links, within a second, and the
        others.
        """
        return await federation.show()

    async def answer_federation(request: Request) -> GatheredStates:
        query = await read_json(request, FederationQuery, QUERY_LIMIT_BYTES)
        claimed = wire.Caller(query.sender) if query.sender else None
        return await federation.answer(query, request.scope[PEER_OF](claimed).neighbor)

    for calls in SPOKEN:
        app.post(
            calls.federation,
            summary="Between neighbors: the states of the clusters behind this one",
            openapi_extra=described_body(FederationQuery) | {"parameters": [HELLO_HEADER]},
            responses=problems("not_a_neighbor", "another_site", "invalid", "too_large"),
            include_in_schema=calls is SPOKEN[0],
        )(answer_federation)


def _add_problem_handlers(app: FastAPI) -> None:
    shown = [route for route in app.routes if getattr(route, "include_in_schema", True)]
    paths = ["/requests", "/openapi.json", *(getattr(route, "path", "") for route in shown)]

    def respond(problem: Problem) -> Response:
        response = Response(problem.body(), problem.status)
        response.raw_headers.extend(problem.all_headers())
        return response

    @app.exception_handler(Problem)
    async def on_problem(_: Request, problem: Problem) -> Response:
        return respond(problem)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> Response:
        first: dict[str, Any] = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return respond(Problem("invalid", f"{where}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        reason = _REASON_BY_STATUS.get(error.status_code, "invalid")
        detail = f"{request.method} {request.url.path}: {error.detail}"
        if reason == "not_found" and (nearest := nearest_path(request.url.path, paths)) is not None:
            detail += f", did you mean {nearest}?"
        elif allowed := (error.headers or {}).get("Allow"):
            detail += f", expected {allowed}"
        headers = [(k.lower().encode(), v.encode()) for k, v in (error.headers or {}).items()]
        return respond(Problem(reason, detail, headers=headers))

    @app.exception_handler(Exception)
    async def on_error(_: Request, __: Exception) -> Response:
        return respond(Problem("internal", "internal error; the node's log has the details"))
