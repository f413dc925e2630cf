"""`spillover bench membership`: connected clients of a federation whose configuration changes four
times, as in Shraer & Reed's evaluation, on real sockets and beside the simulator.

`rules` are those compared and what the simulator says of them, `crowd` the clients in a process,
`steps` what was seen of them, `measuring` the experiment, `report` and `figures` its page;
`one_node` what clients cost a node, and what becomes of them when it is killed.
"""

from __future__ import annotations

from spillover.tools.bench.membership import measuring, one_node

STAGES = (*measuring.STAGES, *one_node.STAGES)
REPORTED = tuple(case for stage in measuring.STAGES for case in stage.cases)
"""What a page can be written on."""
