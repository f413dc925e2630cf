"""Where a probe has been, as producers tell it afterwards (`/explain`): the draws of a live run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from spillover.live.http.client import HttpClient
from spillover.model.errors import RunError

LOOK_S = 30.0

_SENT_ON = re.compile(r"sent on to (\S+): hop (\d+)")
"""As `live.queue.history` says it."""


async def read_way(
    clients: Mapping[str, HttpClient], probe_id: str, first: str, probes: int
) -> list[str]:
    """Returns the producers that were asked by so many probes, from the first on. Raises RunError
    where one knows nothing of the probe."""
    way = [first]
    sent: dict[int, str] = {}
    asked: set[str] = set()
    while len(way) < probes:
        here = way[-1]
        if here not in asked:
            asked.add(here)
            sent |= await _sent_on(clients[here], here, probe_id)
        # A hop from a producer to itself is sent to nobody.
        way.append(sent.get(len(way) + 1, here))
    return way


async def _sent_on(client: HttpClient, name: str, probe_id: str) -> dict[int, str]:
    """By number of the hop: whom this producer has sent it on to."""
    answer = await client.request("GET", f"/explain/{probe_id}", timeout_s=LOOK_S)
    if answer.status != 200:
        raise RunError(f"producer {name}: expected to hear of probe {probe_id}")
    records = (_SENT_ON.fullmatch(told["words"]) for told in json.loads(answer.body)["story"])
    return {int(found[2]): found[1] for found in records if found is not None}
