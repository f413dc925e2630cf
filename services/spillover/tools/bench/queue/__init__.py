"""`spillover bench queue`: a producer of the distributed queue beside one central Redis: a list
with BLMOVE and acknowledgement by removal, and a stream with a group of consumers. `sides` are
those compared, `load` who produces and consumes. And 20 producers with 20 consumers beside the
simulator and the document's model (`waits`, `closed`), and with one of them killed (`killed`).
"""

from __future__ import annotations

from spillover.tools.bench.queue import killed, measuring, waits

STAGES = (*measuring.STAGES, *waits.STAGES, *killed.STAGES)
