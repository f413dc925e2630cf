"""What engines say of themselves, and where, as the configuration tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class EngineLoad(NamedTuple):
    """What engines behind a cluster run and hold, all together. None where that is not said."""

    running: float | None
    """The number of requests that they work at."""
    waiting: float | None
    """The number of requests that they hold back."""
    held: float | None
    """The share of the cache that is in use, of the fullest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSource:
    """Where engines say what they run and hold. At least one is given."""

    metrics: str | None = None
    """The URL of a metrics page, or several with commas between, as Prometheus reads them: that of
    vLLM or of SGLang. Read each second.

    Why: only you know where it is."""
    orca: bool = False
    """The services tell it with each answer, in the header `endpoint-load-metrics` (ORCA), for
    which the node asks them.

    Why: most services have no such header."""
