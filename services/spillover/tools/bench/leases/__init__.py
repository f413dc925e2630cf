"""`spillover bench leases`: what holding partitions costs, and how soon they run elsewhere.

The cases and what they are compared with: decision 0024.
"""

from __future__ import annotations

from spillover.tools.bench.leases import fenced, holding, lateness, members, takeover

STAGES = (holding.STAGE, members.STAGE, lateness.STAGE, takeover.STAGE, *fenced.STAGES)
