"""The token kernels against a simulation in plain Python that does everything the long way.

The twin keeps jobs in one list in order of arrival and tokens in another, works rates out anew
after every event from the paper's formulas, and moves every job on by itself. It takes the same
draws, so that every count must be the same.
"""

import math

import pytest

from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType

JOBS = 400
LONG_MEANS = (2.0, 5.0)


class Job:
    """`left`: work to be done; `turn`: work until it is done or interrupted, None if not drawn."""

    def __init__(self, entry, left):
        self.entry = entry
        self.left = left
        self.turn = None


class Twin:
    """One run. Counts as in the kernels: by type, and idle seconds by server."""

    def __init__(self, pool, draws, *, sizes, quantum, split, order="longest-available"):
        self.pool, self.draws = pool, draws
        self.sizes, self.quantum, self.split = sizes, quantum, split
        self.queue = []
        rounds = range(max(each.tokens for each in pool.classes))
        self.bucket = [each.id for n in rounds for each in pool.classes if n < each.tokens]
        self.servers_of = {each.id: set(each.servers) for each in pool.classes}
        self.rate_of = {server.id: server.rate for server in pool.servers}
        self.ranks = {} if order == "least-loaded" else None
        for name in self.servers_of:
            self.weigh(name)
        self.arrived = dict.fromkeys([each.id for each in pool.types], 0)
        self.blocked = dict(self.arrived)
        self.idle_s = dict.fromkeys(self.rate_of, 0.0)
        self.now_s, self.phi = 0.0, {}

    def run(self, jobs):
        arrival = self.gap()
        while jobs:
            self.draw_turns()
            rates = self.fcfs_rates() if self.quantum else self.balanced_rates()
            ends = [(self.until(job) / rate, n) for n, (job, rate) in rates.items() if rate > 0]
            wait, n = min(ends, default=(math.inf, -1))
            if self.now_s + wait < arrival:
                self.move_on(wait, rates)
                self.end(self.queue[n])
            else:
                self.move_on(arrival - self.now_s, rates)
                self.arrive()
                arrival = self.now_s + self.gap()
                jobs -= 1

    def gap(self):
        return self.draws.gaps.standard_exponential() / sum(each.rate for each in self.pool.types)

    def until(self, job):
        return job.left if job.turn is None else job.turn

    def move_on(self, wait, rates):
        self.now_s += wait
        for server in self.idle_s:
            if not any(server in self.servers_of[job.entry] for job in self.queue):
                self.idle_s[server] += wait
        for job, rate in rates.values():
            job.left -= rate * wait
            if job.turn is not None:
                job.turn -= rate * wait

    def end(self, job):
        self.queue.remove(job)
        if self.quantum and job.left > 1e-9:
            job.turn = None
            self.queue.append(job)
        else:
            self.bucket.append(job.entry)
            self.weigh(job.entry)

    def weigh(self, name):
        """The rank that the class has until a token of it comes or goes, by decision 0038."""
        if self.ranks is None:
            return
        limits = {each.id: each.tokens for each in self.pool.classes}
        speed = {
            each: sum(math.sqrt(self.rate_of[server]) for server in servers)
            for each, servers in self.servers_of.items()
        }
        held = limits[name] - self.bucket.count(name) + 0.01
        self.ranks[name] = held / (speed[name] / (sum(speed.values()) / len(speed)))
        for kind in self.pool.types:
            if name in kind.classes and len(kind.classes) < len(limits) and name in self.bucket:
                free = sum(self.bucket.count(each) for each in kind.classes)
                self.ranks[name] += 1.0 / math.sqrt(free)

    def draw_turns(self):
        """Whoever is first of its class and has no turn gets one."""
        if self.quantum:
            for name in self.servers_of:
                first = next((job for job in self.queue if job.entry == name), None)
                if first is not None and first.turn is None:
                    first.turn = first.left
                    if self.quantum < math.inf:
                        quantum = self.quantum * self.draws.quanta.standard_exponential()
                        first.turn = min(first.left, quantum)

    def arrive(self):
        total = sum(each.rate for each in self.pool.types)
        draw, k = self.draws.types.random() * total if len(self.pool.types) > 1 else 0.0, 0
        while draw >= sum(each.rate for each in self.pool.types[: k + 1]):
            k += 1
        kind = self.pool.types[k]
        self.arrived[kind.id] += 1
        chosen = self.choose(kind)
        size = self.size(k, chosen)
        if chosen is None:
            self.blocked[kind.id] += 1
        else:
            self.bucket.remove(chosen)
            self.weigh(chosen)
            self.queue.append(Job(chosen, size))

    def choose(self, kind):
        if self.ranks is not None:
            there = [name for name in kind.classes if name in self.bucket]
            return min(there, key=self.ranks.__getitem__, default=None)
        if self.split is None:
            return next((name for name in self.bucket if name in kind.classes), None)
        draw, reached = self.draws.choices.random(), 0.0
        for name in kind.classes:
            reached += self.split[kind.id][name]
            if draw < reached:
                return name if name in self.bucket else None
        raise AssertionError("the shares sum to 1")

    def size(self, k, chosen):
        if self.sizes == "det":
            return 1.0
        size = self.draws.sizes.standard_exponential()
        if self.sizes == "exp":
            return size
        if self.sizes == "hyper-by-class":
            names = [each.id for each in self.pool.classes]
            k = names.index(chosen) if chosen is not None else 0
        mean = LONG_MEANS[k % 2]
        return size * (mean if self.draws.branches.random() < 1.0 / (mean + 1.0) else 1.0 / mean)

    def fcfs_rates(self):
        """Section II-C: each job has the servers of its class that no earlier job can use."""
        rates, used = {}, set()
        for n, job in enumerate(self.queue):
            mine = self.servers_of[job.entry] - used
            rates[n] = job, sum(self.rate_of[server] for server in mine)
            used |= mine
        return rates

    def balanced_rates(self):
        """Section II-B: phi_i(x) / x_i for each job, phi_i(x) = Phi(x - e_i) / Phi(x)."""
        names = list(self.servers_of)
        x = tuple(sum(job.entry == name for job in self.queue) for name in names)
        rates = {}
        for n, job in enumerate(self.queue):
            i = names.index(job.entry)
            rates[n] = job, self.balance(less(x, i)) / self.balance(x) / x[i]
        return rates

    def balance(self, x):
        if x not in self.phi:
            active = [i for i, count in enumerate(x) if count]
            names = list(self.servers_of)
            servers = set().union(*(self.servers_of[names[i]] for i in active))
            capacity = sum(self.rate_of[server] for server in servers)
            before = sum(self.balance(less(x, i)) for i in active)
            self.phi[x] = before / capacity if active else 1.0
        return self.phi[x]


def less(x, i):
    return (*x[:i], x[i] - 1, *x[i + 1 :])


def unlike_pool():
    """Pooled servers, one with a class of its own, classes of unlike size, two types, overload."""
    rates = {"s1": 1.0, "s2": 2.0, "s3": 0.5, "s4": 1.5}
    classes = {"a": ("s1", "s2"), "b": ("s2", "s3"), "c": ("s3", "s1"), "d": ("s4",)}
    tokens = {"a": 3, "b": 2, "c": 1, "d": 4}
    return Pool(
        name="unlike",
        servers=tuple(PoolServer(id=name, rate=rate) for name, rate in rates.items()),
        classes=tuple(
            PoolClass(id=name, servers=servers, tokens=tokens[name])
            for name, servers in classes.items()
        ),
        types=(
            PoolType(id="x", rate=3.0, classes=("a", "b")),
            PoolType(id="y", rate=2.5, classes=("b", "c", "d")),
        ),
    )


SPLIT = {"x": {"a": 0.7, "b": 0.3}, "y": {"b": 0.0, "c": 0.25, "d": 0.75}}


SIZES = ("exp", "hyper", "hyper-by-class", "det")
QUANTA = (None, math.inf, 0.3)
"""Processor sharing, first come first served, and interrupted."""
RULES = ((None, "longest-available"), (None, "least-loaded"), (SPLIT, "longest-available"))
CASES = [
    (sizes, quantum, *RULES[(row + column) % len(RULES)])
    for row, sizes in enumerate(SIZES)
    for column, quantum in enumerate(QUANTA)
]
"""Each two of them together."""


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "quantum", "split", "order"), CASES)
def test_every_count_is_the_twins(numba, sizes, quantum, split, order):
    """Blocked jobs by type to the job, idle times by server and the end to rounding."""
    from spillover.sim.fast.tokens.jobs import draws_of
    from spillover.sim.fast.tokens.run import TokenSystem

    pool, seed = unlike_pool(), 11
    twin = Twin(pool, draws_of(seed), sizes=sizes, quantum=quantum, split=split, order=order)
    twin.run(JOBS)
    rows = None if split is None else [list(row.values()) for row in split.values()]
    system = TokenSystem(pool, seed=seed, shares=rows, sizes=sizes, quantum=quantum, order=order)
    for jobs in (1, 0, JOBS - 1):  # in parts: nothing may be lost in between
        system.advance(jobs)
    counts = system.counts()
    assert counts.arrived.tolist() == list(twin.arrived.values())
    assert counts.blocked.tolist() == list(twin.blocked.values())
    assert 0.05 * JOBS < sum(twin.blocked.values()) < 0.8 * JOBS
    assert counts.now_s == pytest.approx(twin.now_s, rel=1e-9)
    assert counts.idle_s.tolist() == pytest.approx(list(twin.idle_s.values()), rel=1e-6)
