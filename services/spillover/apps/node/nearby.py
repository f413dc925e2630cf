"""Wrong paths: which of those that exist is most likely meant. For the answer to a 404 alone."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

LOOKED_AT = 100
"""Characters of a path: comparing takes the square of the time."""

ALIKE_MIN = 0.8
"""Of `difflib`'s ratio; below it nothing is named."""

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


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
