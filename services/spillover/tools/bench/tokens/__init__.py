"""`spillover bench tokens`: a pool of unlike servers under a real node, beside what else chooses a
server for a job, on the same schedules, and beside the exact values of theory.

`workloads` says what is played and what counts, `sides` who plays it, `sharing_servers` is what
does the work, `dispatchers` with their `rules` what stands beside us (`rivals`), `outcome` the
arithmetic, `measuring` the order of it all. `dispatch` is apart: what one costs, and no network.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from spillover.tools.bench.model import Stage
from spillover.tools.bench.tokens.workloads import DISPATCHES_OF, WORKLOADS, Workload

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session


async def _measure(workload: Workload, session: Session) -> None:
    # Only here: of all the processes that import this package, one measures and needs numpy.
    from spillover.tools.bench.tokens.measuring import measure  # noqa: PLC0415

    await measure(workload, session)


async def _measure_dispatch(session: Session) -> None:
    from spillover.tools.bench.tokens.dispatch import measure  # noqa: PLC0415 - as above

    await measure(session)


STAGES = (
    Stage(tuple(DISPATCHES_OF.values()), _measure_dispatch),
    *(Stage((workload.name,), partial(_measure, workload)) for workload in WORKLOADS),
)
