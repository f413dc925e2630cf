"""Pages from templates: one HTML file each, which needs nothing else.

A template is named by its place below `spillover_lab`; it extends `report/frame.html.jinja` and
builds on the macros of `report/parts.html.jinja`. Every value is escaped. What a page says is
not known here.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import spillover
from spillover.model.errors import InputError, RunError
from spillover.model.extras import check_extra, missing_extra
from spillover_lab.report import formats, palette

if TYPE_CHECKING:
    from jinja2 import Environment


def page(template: str, *, series: int = 0, **values: object) -> str:
    """Returns the page as text; `series` is the number of things with a color of their own.

    Raises InputError when jinja2 is not installed.
    """
    light, dark = palette.variables(series)
    return _environment().get_template(template).render(light=light, dark=dark, **values)


def check_report(path: Path) -> None:
    """Find out before minutes have passed that there could be no report. Raises InputError."""
    check_extra("the report", "report", "matplotlib", "jinja2")
    directory = path.parent
    if path.is_dir() or not directory.is_dir() or not os.access(directory, os.W_OK):
        raise InputError("--report", "", f"expected a file that can be written, got {path}")


def write_report(text: str, path: Path) -> None:
    """Writes a page to `path`. Raises RunError if that cannot be."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: the report cannot be written: {error.strerror}") from error


def made_with(*others: str) -> dict[str, str]:
    """Returns the facts on versions and machine for the end of a page."""
    versions = (f"Spillover {spillover.__version__}", f"Python {platform.python_version()}")
    return {
        "versions": ", ".join((*versions, *others)),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def _environment() -> Environment:
    try:
        # Only reports need it.
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("the report", "report", "jinja2") from error
    environment = Environment(
        loader=PackageLoader("spillover_lab", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for told in (formats.milliseconds, formats.duration, formats.factor):
        environment.filters[told.__name__] = told
    return environment
