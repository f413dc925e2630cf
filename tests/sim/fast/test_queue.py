"""The compiled kernel against a plain twin of the document's pseudo-code that draws the same
numbers: event by event the same, whatever the system."""

import heapq
import math
from collections import deque
from random import Random

import pytest

from support.few import all_in_soak

pytestmark = pytest.mark.usefixtures("numba")


class Twin:
    """Section 2 of the document as it is written: threads, messages, a buffer and a queue.

    Draws come in the order of the events, as in the kernel; `seed` begins a batch.
    """

    def __init__(self, rates, consumers, rows, law, *, avoid_visited):
        self.rates, self.rows, self.law = rates, rows, law
        self.avoid_visited = avoid_visited
        self.consumers = consumers
        self.buffer = [0] * len(rates)
        self.blocked = [deque() for _ in rates]
        self.visited = [set() for _ in range(consumers)]
        self.asked = [0.0] * consumers
        self.events = []
        self.now = 0.0
        self.producing = set()
        self.consuming = set()
        self.highest = 0
        self.log = []

    def seed(self, seed):
        import numpy as np

        self.draws = np.random.RandomState(seed)

    def after(self, mean, owner, what, *args):
        delay = -math.log(1.0 - self.draws.random_sample()) * mean
        self.schedule(delay, owner, what, *args)

    def schedule(self, delay, owner, what, *args):
        heapq.heappush(self.events, (self.now + delay, owner, what, args))

    def unblock(self, j):
        self.producing.add(j)
        if self.law.spread < 0:
            self.after(1.0 / self.rates[j], j, "object", j)
            return
        draw = 2.0 * self.draws.random_sample() - 1.0
        self.schedule((1.0 + self.law.spread * draw) / self.rates[j], j, "object", j)

    def send_request(self, i, hops):
        row = self.rows[i % len(self.rows)]
        left = [(j, p) for j, p in row if not self.avoid_visited or j not in self.visited[i]]
        if not sum(p for _, p in left) > 0:
            left = row
        target = self.draws.random_sample() * sum(p for _, p in left)
        reached = 0.0
        for j, share in left:
            if share > 0:
                chosen = j
                reached += share
                if target < reached:
                    break
        self.visited[i].add(chosen)
        self.after(self.law.message_time, self.owner(i), "request", chosen, i, hops)

    def owner(self, i):
        return len(self.rates) + i

    def reply(self, i, hops):
        self.after(self.law.message_time, self.owner(i), "reply", i, hops)

    def start(self):
        for j in range(len(self.rates)):
            self.unblock(j)
        for i in range(self.consumers):
            self.ask(i)

    def ask(self, i):
        self.asked[i] = self.now
        self.visited[i] = set()
        self.send_request(i, 1)

    def step(self):
        time, _, what, args = heapq.heappop(self.events)
        passed, self.now = time - self.now, time
        self.log.append((passed, sum(self.rates[j] for j in self.producing), len(self.consuming)))
        getattr(self, f"on_{what}")(*args)
        self.highest = max(self.highest, *self.buffer)
        for j, queue in enumerate(self.blocked):
            assert not (queue and self.buffer[j]), "an object waits beside a parked request"
            assert (j in self.producing) == (self.buffer[j] < self.law.buffers)

    def on_request(self, j, i, hops):
        self.probes += 1
        if self.buffer[j]:
            was_full = self.buffer[j] == self.law.buffers
            self.buffer[j] -= 1
            self.reply(i, hops)
            if was_full:
                self.unblock(j)
            return
        self.empty += 1
        if hops < self.law.max_hops:
            self.send_request(i, hops + 1)
        else:
            self.blocked[j].append((i, hops))

    def on_object(self, j):
        self.producing.discard(j)
        if self.blocked[j]:
            self.reply(*self.blocked[j].popleft())
            self.unblock(j)
            return
        self.buffer[j] += 1
        if self.buffer[j] < self.law.buffers:
            self.unblock(j)

    def on_reply(self, i, hops):
        assert 1 <= hops <= self.law.max_hops
        self.waits.append(self.now - self.asked[i])
        self.hops.append(hops)
        self.consuming.add(i)
        self.after(self.law.consumption_time, self.owner(i), "consumed", i)

    def on_consumed(self, i):
        self.consuming.discard(i)
        self.ask(i)

    def run(self, objects, seed):
        """The sums of one batch, in the kernel's order."""
        self.seed(seed)
        self.waits, self.hops, self.log = [], [], []
        self.probes = self.empty = 0
        while len(self.waits) < objects:
            self.step()
        return [
            sum(self.waits),
            sum(self.hops),
            self.probes,
            self.empty,
            sum(passed for passed, _, _ in self.log),
            sum(passed * rate for passed, rate, _ in self.log),
            sum(passed * count for passed, _, count in self.log),
        ]


def drawn_system(random):
    """Few producers and consumers, so that everything happens often."""
    from spillover.sim.fast.queue import EXPONENTIAL, Law

    producers, consumers = random.randint(1, 6), random.randint(1, 12)
    rates = [random.choice((0.5, 1.0, 3.0)) for _ in range(producers)]
    shape = random.choice(("even", "weighted", "restricted"))
    if shape == "restricted":
        width = random.randint(1, producers)
        rows = [
            [(j, 1.0 / width) for j in sorted(random.sample(range(producers), width))]
            for _ in range(consumers)
        ]
    elif shape == "weighted":
        rows = [[(j, random.choice((0.0, 0.5, 1.0))) for j in range(producers - 1)]]
        rows[0].append((producers - 1, 1.0))
    else:
        rows = [[(j, 1.0 / producers) for j in range(producers)]]
    law = Law(
        consumption_time=random.choice((0.2, 1.0, 3.0)),
        message_time=random.choice((0.0, 0.05, 1.0)),
        buffers=random.randint(1, 4),
        max_hops=random.randint(1, 5),
        spread=random.choice((EXPONENTIAL, 0.0, 1 / 3)),
    )
    return rates, consumers, rows, law


@pytest.mark.parametrize("avoid_visited", [False, True])
@pytest.mark.parametrize("seed", all_in_soak(range(40), 4))
def test_the_kernel_does_what_the_pseudo_code_says(seed, avoid_visited):
    """Three batches: waits, hops, probes, empty producers, and the integrals over time; at the
    end, every buffer and every queue of parked requests in order. The kernel runs in parts, the
    twin without a pause."""
    from spillover.sim.fast import queue as kernel

    random = Random(seed)
    rates, consumers, rows, law = drawn_system(random)
    net = kernel.new_net(rates, consumers, rows, avoid_visited=avoid_visited)
    twin = Twin(rates, consumers, rows, law, avoid_visited=avoid_visited)
    kernel.begin(net, law, seed)
    twin.seed(seed)
    twin.start()
    for batch in (1, 60, 300):
        kernel.begin_batch(net, seed + batch)
        left = batch
        while left:
            left = kernel.advance(net, law, left, 7)
        assert net.sums.tolist() == pytest.approx(twin.run(batch, seed + batch), rel=1e-9)
    assert net.clock[0] == pytest.approx(twin.now)
    assert net.buffered.tolist() == twin.buffer
    assert max(twin.buffer, default=0) <= twin.highest <= law.buffers
    for j, queue in enumerate(twin.blocked):
        parked, i = [], net.first[j]
        while i != kernel.NOBODY:
            parked.append(i)
            i = net.behind[i]
        assert parked == [i for i, _ in queue]
