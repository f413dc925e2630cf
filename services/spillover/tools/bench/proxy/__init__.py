"""`spillover bench proxy`: what it costs to stand in front of a service, with 0, 1 and 2 hops.

`service` and `readers` are the processes at both ends, `ways` what lies between them, `busy` says
when an end was the limit. The cases and what they are compared with: decision 0043.
"""

from __future__ import annotations

from spillover.tools.bench.proxy import memory, requests, streams

STAGES = (*streams.STAGES, *memory.STAGES, *requests.STAGES)
