"""The routes of the page: `/docs` and its style. What it shows is in `page`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response

from spillover.apps.http.api_docs.page import page
from spillover.apps.http.console.assets import ASKED_AGAIN, SAFE_HEADERS

PATH = "/docs"
STYLE = Path(__file__).with_name("style.css")

_HEADERS = {**SAFE_HEADERS, "cache-control": ASKED_AGAIN}


def add_api_docs(app: FastAPI) -> None:
    """Add them. The page shows what the app's own description says when it is first asked for."""

    @cache
    def shown() -> bytes:
        return page(app.openapi()).encode()

    @app.get(PATH, include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(shown(), headers=_HEADERS)

    @app.get(f"{PATH}/style.css", include_in_schema=False)
    async def style() -> Response:
        return Response(STYLE.read_bytes(), headers=_HEADERS, media_type="text/css")
