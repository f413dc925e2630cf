"""`spillover bench peers`: live federations beside what an operator builds today, one HAProxy for
each site that spills over a threshold of its queue, on the same schedules.

`workloads` says what is played and what counts, `sides` who plays it, `sites` is what stands beside
us (with the processes `emulated_servers` and `relays`), `outcome` the arithmetic, `measuring` the
order of it all.
"""

from __future__ import annotations

from functools import partial

from spillover.tools.bench.model import Stage
from spillover.tools.bench.peers.measuring import measure
from spillover.tools.bench.peers.workloads import WORKLOADS

STAGES = tuple(Stage((workload.name,), partial(measure, workload)) for workload in WORKLOADS)
