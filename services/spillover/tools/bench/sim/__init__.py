"""`spillover bench sim`: how fast the engines of the simulator are, beside SimPy and Ciw.

The models in `simpy_model` and `ciw_model` are written as users of those libraries would, from the
paper alone; tests hold their means against ours.
"""

from __future__ import annotations

from spillover.tools.bench.sim.interrupts import interruptible
from spillover.tools.bench.sim.scale import STAGES as SCALE_STAGES
from spillover.tools.bench.sim.speed import STAGES as SPEED_STAGES

STAGES = tuple(interruptible(stage) for stage in (*SPEED_STAGES, *SCALE_STAGES))
