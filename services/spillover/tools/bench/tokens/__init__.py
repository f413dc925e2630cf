"""`spillover bench tokens`: a pool of unlike servers under a real node, beside what else chooses a
server for a job, on the same schedules, and beside the exact values of theory.

`workloads` says what is played and what counts, `sides` who plays it, `sharing_servers` is what
does the work, `dispatchers` with their `rules` what stands beside us, `outcome` the arithmetic,
`measuring` the order of it all.
"""

from __future__ import annotations

from functools import partial

from spillover.tools.bench.model import Stage
from spillover.tools.bench.tokens.measuring import measure
from spillover.tools.bench.tokens.workloads import WORKLOADS

STAGES = tuple(Stage((workload.name,), partial(measure, workload)) for workload in WORKLOADS)
