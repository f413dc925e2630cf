"""The FastAPI app of a lease member: routes that show what `live.leases.report` knows."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from spillover import __version__
from spillover.apps.http.api_docs.routes import add_api_docs
from spillover.apps.http.heads import HeadAsGet
from spillover.apps.http.sites import Site
from spillover.apps.lease.console_view import lease_console
from spillover.apps.lease.problems import Problem, ProblemView, add_problem_handlers, problems
from spillover.apps.lease.views import LeaseState, MemberState, lease_state, member_state
from spillover.live.leases.metrics import LeaseMetrics
from spillover.live.leases.report import GroupReport

SITE = Site()
"""A member has no name in its configuration."""

NOT_READY = ("joining", "id_taken", "draining", "redis_down", "not_ready")


def create_app(report: GroupReport, metrics: LeaseMetrics) -> FastAPI:
    """Returns the whole service of one member."""
    app = FastAPI(
        title=f"Spillover lease member {report.member.node}",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _add_state_routes(app, report)
    _add_probes(app, report, metrics)
    app.state.console = lease_console(report)
    app.state.console.mount(app)
    add_api_docs(app)
    add_problem_handlers(app)
    app.add_middleware(HeadAsGet)  # many a health checker asks so
    _describe_problems(app)
    return app


def _add_state_routes(app: FastAPI, report: GroupReport) -> None:
    @app.get("/state")
    async def state() -> LeaseState:
        """Returns the whole group. While Redis is away: what the member knows, and the last that
        was read, with its age.
        """
        return lease_state(report, await report.look())

    @app.post("/admin/drain", status_code=202, responses=problems("another_site"))
    async def drain(request: Request) -> MemberState:
        """Hand everything over and leave; then the process ends with status 0."""
        reason = SITE.why_not_operate(request.headers)
        if reason is not None:
            raise Problem("another_site", reason)
        report.member.drain_soon()
        return member_state(report)


def _add_probes(app: FastAPI, report: GroupReport, metrics: LeaseMetrics) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """200 as long as the process can answer."""
        return {"status": "ok"}

    @app.get("/readyz", responses=problems(*NOT_READY))
    async def readyz() -> dict[str, str]:
        """200 while the member takes part."""
        found = report.not_ready()
        if found is not None:
            raise Problem(*found)
        return {"status": "ready"}

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def show_metrics() -> Response:
        """For Prometheus."""
        return Response(
            generate_latest(metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST}
        )


def _describe_problems(app: FastAPI) -> None:
    """Routes refer to the schema of problems, which none of them returns."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            schemas[ProblemView.__name__] = ProblemView.model_json_schema()
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
