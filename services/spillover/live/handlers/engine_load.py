"""What engines say of themselves, read: metrics pages of vLLM and SGLang, and ORCA's header.

Anything may stand there. What is no number that can be is not read, and of what is read several
times, as an engine of several ranks says it, counts are added and shares are the largest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import islice

import msgspec

from spillover.model.engine_load import EngineLoad
from spillover.model.errors import UNREADABLE

REQUESTS_MAX = 1e6
"""More requests than that no engine has."""

SAMPLES_MAX = 1_024
"""So many samples of a page are read: an engine says some for each of its ranks."""

HEADER_LENGTH_MAX = 4_096

ORCA_HEADER = b"endpoint-load-metrics"
ORCA_ASKED = (b"endpoint-load-metrics-format", b"TEXT")
"""The header by which vLLM is asked to say it, and in which form."""

RUNNING, WAITING, HELD = "running", "waiting", "held"

_NAMES = {
    b"vllm:num_requests_running": RUNNING,
    b"vllm:num_requests_waiting": WAITING,
    b"vllm:gpu_cache_usage_perc": HELD,
    b"vllm:kv_cache_usage_perc": HELD,
    b"sglang:num_running_reqs": RUNNING,
    b"sglang:num_queue_reqs": WAITING,
    b"sglang:token_usage": HELD,
}

_SAMPLE = re.compile(
    rb"^(%b)(?:\{[^\n]*\})?[ \t]+([^ \t\r\n]{1,32})(?=\s|\Z)" % b"|".join(_NAMES), re.MULTILINE
)

_OF_ORCA = {
    "num_requests_running": RUNNING,
    "num_requests_waiting": WAITING,
    "kv_cache_usage_perc": HELD,
    "gpu_cache_usage_perc": HELD,
}
_NAMED = "named_metrics"

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_named = msgspec.json.Decoder(dict[str, float]).decode


def load_on_page(page: bytes) -> EngineLoad | None:
    """Returns what a metrics page says; None if it says nothing of that."""
    found = (match.groups() for match in islice(_SAMPLE.finditer(page), SAMPLES_MAX))
    return _load_of((_NAMES[name], _number(told)) for name, told in found)


def load_in_header(value: bytes) -> EngineLoad | None:
    """Returns what the header `endpoint-load-metrics` says, in its form TEXT or JSON; None if it
    says nothing of that, or has another form."""
    form, _, told = value[:HEADER_LENGTH_MAX].strip().partition(b" ")
    if form == b"JSON":
        try:
            named = _decode_named(_decode(told).get(_NAMED, msgspec.Raw(b"{}")))
        except UNREADABLE:
            return None
        pairs = list(named.items())
    elif form == b"TEXT":
        pairs = []
        for one in told.split(b","):
            name, _, number = one.strip().partition(b"=")
            known = _number(number)
            if known is not None:
                pairs.append((name.decode("latin-1").removeprefix(f"{_NAMED}."), known))
    else:
        return None
    return _load_of((_OF_ORCA[name], number) for name, number in pairs if name in _OF_ORCA)


def together(loads: Iterable[EngineLoad]) -> EngineLoad:
    """Returns what several engines say, as one. What they run is not known unless all say it: the
    sum of some is too small."""
    all_told = list(loads)
    told = [
        (kind, number)
        for load in all_told
        for kind, number in zip((RUNNING, WAITING, HELD), load, strict=True)
    ]
    found = _load_of(told) or EngineLoad(None, None, None)
    known = all(load.running is not None for load in all_told)
    return found if known else found._replace(running=None)


def _load_of(samples: Iterable[tuple[str, float | None]]) -> EngineLoad | None:
    found: dict[str, float] = {}
    for kind, number in samples:
        if number is None or not 0.0 <= number <= (1.0 if kind == HELD else REQUESTS_MAX):
            continue  # such as a share in percent
        if kind == HELD:
            found[kind] = max(found.get(kind, 0.0), number)
        else:
            found[kind] = min(found.get(kind, 0.0) + number, REQUESTS_MAX)
    if WAITING not in found and HELD not in found:
        return None
    return EngineLoad(found.get(RUNNING), found.get(WAITING), found.get(HELD))


def _number(told: bytes) -> float | None:
    try:
        number = float(told)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
