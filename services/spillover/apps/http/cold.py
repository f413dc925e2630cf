"""The FastAPI app that every service has for its cold routes: probes, the page of its calls, its
console, HEAD, and problems in place of what FastAPI and Starlette answer by themselves.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from spillover import __version__
from spillover.apps.http.api_docs.routes import add_api_docs
from spillover.apps.http.asgi import AsgiApp, Message, Receive, Scope, Send
from spillover.apps.http.console.console import Console
from spillover.apps.http.problems import BUG, Problem, as_response

MetricsPage: TypeAlias = Callable[[Request], Awaitable[bytes]]

LOOKED_AT = 100
"""Characters of a wrong path: comparing takes the square of the time."""

ALIKE_MIN = 0.8
"""The least ratio of `difflib` at which a path is named."""

READY = "/readyz"
WHOLE = frozenset({"/", "*"})
"""The methods that OPTIONS of the service as a whole names."""

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_REASON_BY_STATUS = {404: "not_found", 405: "method_not_allowed"}


@contextmanager
def without_pydantic_1() -> Iterator[None]:
    """Keeps FastAPI from loading pydantic 1 while routes are made. It asks of each type of each
    route whether it is one of pydantic 1, and loads all of that to ask, a tenth of the CPU time of
    a start. None of ours is: meanwhile FastAPI finds what it takes for a pydantic without that."""
    name, modules = "pydantic.v1", cast("dict[str, ModuleType | None]", sys.modules)
    if name in modules:
        yield
        return
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]  # a handler of users may well be of pydantic 1


class MadeWhenAsked:
    """An ASGI app around one that is made when it is first asked for, which many a node in a test
    never is: to make routes takes FastAPI longer than all else takes that a node makes. A process
    makes it as it starts: pydantic 1 is meanwhile hidden from all its threads."""

    def __init__(self, make: Callable[[], FastAPI]) -> None:
        self._make = make
        self._app: FastAPI | None = None

    def made(self) -> FastAPI:
        """Returns it, made now if it was not."""
        if self._app is None:
            with without_pydantic_1():
                self._app = self._make()
        return self._app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.made()(scope, receive, send)


def new_app(title: str, registry: CollectorRegistry, page: MetricsPage | None = None) -> FastAPI:
    """Returns an app that says that it lives, and its metrics: those of the registry, or a `page`
    of them."""
    app = FastAPI(
        title=title, version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False
    )

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """200 as long as the process can answer."""
        return {"status": "ok"}

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics(request: Request) -> Response:
        """Give the metrics to Prometheus."""
        told = generate_latest(registry) if page is None else await page(request)
        return Response(told, headers={"content-type": CONTENT_TYPE_LATEST})

    return app


def complete(app: FastAPI, console: Console, *other_paths: str) -> None:
    """Add what comes behind a service's own routes. `other_paths` exist besides: where a path is
    wrong, one of those that exist is named."""
    app.state.console = console
    console.mount(app)
    add_api_docs(app)
    _add_problem_handlers(app, other_paths)
    app.add_middleware(_AskedAsGet)


class _AskedAsGet:
    """An ASGI app around another one that needs to know nothing of how health checkers ask. HEAD is
    answered wherever GET is, by the same route, without the body. OPTIONS of the service as a whole
    is what HAProxy asks unless told otherwise, and means whether to send requests: it is answered
    as `/readyz` is.

    The answer to HEAD ends with its header, also one that has no end: whoever streams it hears of a
    disconnect from `receive`, as when a client has gone.
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS" and scope["path"] in WHOLE:
            await self._app({**scope, "method": "GET", "path": READY}, receive, _allowing(send))
            return
        if scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        ended = False

        async def send_head(message: Message) -> None:
            nonlocal ended
            if message["type"] == "http.response.start":
                await send(message)
            elif not ended:
                ended = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        # The server keeps the scope that it made: there it stays a HEAD.
        await self._app({**scope, "method": "GET"}, receive, send_head)


def _allowing(send: Send) -> Send:
    """Returns what sends the same, with what may be asked of the whole."""

    async def allowing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"allow", b"GET, HEAD, OPTIONS")]
        await send(message)

    return allowing


def with_head(methods: Iterable[str]) -> str:
    """Returns what `Allow` says of these: HEAD goes where GET goes."""
    told = list(dict.fromkeys(methods))
    if "GET" in told and "HEAD" not in told:
        told.insert(told.index("GET") + 1, "HEAD")
    return ", ".join(told)


def _add_problem_handlers(app: FastAPI, other_paths: Iterable[str]) -> None:
    shown = [route for route in app.routes if getattr(route, "include_in_schema", True)]
    paths = [*other_paths, "/openapi.json", *(getattr(route, "path", "") for route in shown)]

    @app.exception_handler(Problem)
    async def on_problem(_: Request, problem: Problem) -> Response:
        return as_response(problem)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> Response:
        first: dict[str, Any] = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return as_response(Problem("invalid", f"{where}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        reason = _REASON_BY_STATUS.get(error.status_code, "invalid")
        detail = f"{request.method} {request.url.path}: {error.detail}"
        told = dict(error.headers or {})
        if reason == "not_found" and (nearest := nearest_path(request.url.path, paths)) is not None:
            detail += f", did you mean {nearest}?"
        elif "Allow" in told:
            told["Allow"] = with_head(told["Allow"].split(", "))
            detail += f", expected {told['Allow']}"
        headers = [(k.lower().encode(), v.encode()) for k, v in told.items()]
        return as_response(Problem(reason, detail, headers=headers))

    @app.exception_handler(Exception)
    async def on_error(_: Request, __: Exception) -> Response:
        return as_response(Problem("internal", BUG))


def nearest_path(path: str, routes: Iterable[str]) -> str | None:
    """Returns the route whose fixed beginning is most alike to that of this path; None if none
    is.
    """
    best, best_ratio = None, ALIKE_MIN
    given = path[:LOOKED_AT].rstrip("/").split("/")
    for route in routes:
        fixed = route.partition("{")[0].rstrip("/")
        if not fixed:
            continue
        if len(given) > 1 and fixed.endswith("/".join(given)):
            return _PARAMETER.sub(r"{\1}", route)  # what stands before it was left out
        matcher = difflib.SequenceMatcher(None, "/".join(given[: fixed.count("/") + 1]), fixed)
        ratio = matcher.ratio() - 0.01 * abs(len(given) - len(route.split("/")))
        if ratio >= best_ratio:
            best, best_ratio = _PARAMETER.sub(r"{\1}", route), ratio
    return best
