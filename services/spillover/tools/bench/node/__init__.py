"""`spillover bench node`: what a request costs at a node, and what it costs to have a node at all.

The cases and what they are compared with: decision 0011.
"""

from __future__ import annotations

from spillover.tools.bench.node import encrypted, gossip, latency, memory, paths

STAGES = (*paths.STAGES, latency.STAGE, gossip.STAGE, *memory.STAGES, *encrypted.STAGES)
