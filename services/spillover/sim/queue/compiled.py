"""`spillover sim probing`: the distributed queue by its pseudo-code, with batch-means intervals.

The events are in `sim/fast/queue`, what is decided in `policy/queue`, what is measured in
`measuring`.
"""

from __future__ import annotations

from collections.abc import Callable

from spillover.model.errors import InputError
from spillover.sim.engine.world import stream

# Above the kernel: it says in one line that numba is missing.
from spillover.sim.fast import compile as _numba_first  # noqa: F401
from spillover.sim.fast import queue as kernel
from spillover.sim.queue import measuring
from spillover.sim.queue.system import SOURCE, ProbingSystem

EVENTS_AT_ONCE = 500_000
"""The kernel runs so many events at once, in a fraction of a second: then Ctrl-C counts and
progress is shown."""


def simulate(
    system: ProbingSystem,
    objects: int,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
    *,
    production_spread: float | None = None,
    avoid_visited: bool = False,
) -> measuring.ProbingRun:
    """Run until `objects` of them have reached their consumers, after a warm-up.

    With `production_spread` s, the time to make an object is uniform within (1 - s) and (1 + s)
    times its mean instead of exponential (the document's figure 6: 1/3). `avoid_visited`: a
    request probes no producer twice while others are left. `on_progress` is told how many objects
    have come, the warm-up's not counted. Raises InputError for fewer objects than batches.
    """
    measuring.check_objects(objects)
    if production_spread is not None and not 0.0 <= production_spread <= 1.0:
        expected = f"expected a share of 0 to 1, got {production_spread:g}"
        raise InputError(SOURCE, "production_spread", expected)
    rates = [kind.rate for kind in system.kinds for _ in range(kind.count)]
    rows = measuring.access_rows(system, stream(seed, "probing/access"))
    net = kernel.new_net(rates, system.consumers, rows, avoid_visited=avoid_visited)
    law = kernel.Law(
        consumption_time=1.0 / system.consumption_rate,
        message_time=system.message_time,
        buffers=system.buffers,
        max_hops=system.max_hops,
        spread=kernel.EXPONENTIAL if production_spread is None else production_spread,
    )
    seeds = stream(seed, "probing/kernel")
    kernel.begin(net, law, seeds.getrandbits(32))
    _run_batch(net, law, measuring.warm_up(system, objects), seeds.getrandbits(32), lambda _: None)
    batches = []
    done = 0
    for batch in range(measuring.BATCHES):
        until = objects * (batch + 1) // measuring.BATCHES

        def left(objects_left: int, until: int = until) -> None:
            if on_progress is not None:
                on_progress(until - objects_left)

        _run_batch(net, law, until - done, seeds.getrandbits(32), left)
        batches.append((until - done, measuring.Sums(*net.sums.tolist())))
        done = until
    return measuring.sum_up(system, objects, batches)


def _run_batch(
    net: kernel.Net, law: kernel.Law, objects: int, seed: int, left: Callable[[int], None]
) -> None:
    """Run a batch in parts, between which Ctrl-C is heard and `left` is told how many objects are
    to come."""
    kernel.begin_batch(net, seed)
    while objects:
        objects = kernel.advance(net, law, objects, EVENTS_AT_ONCE)
        left(objects)
