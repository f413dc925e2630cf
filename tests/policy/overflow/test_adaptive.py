"""Adaptive against a plain twin written from decision 0037, its formulas against closed forms, and
what it must never do."""

import math
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spillover.policy.overflow import adaptive, report_terms
from spillover.policy.overflow.base import KEEP
from support.loads import neighbor_loads, own_load

ALMOST_ONE = 1.0 - 2.0**-53
draws = st.floats(0.0, ALMOST_ONE)


# --- the formulas -----------------------------------------------------------------------------


def integrated_excess(mean, spread, steps=5_000):
    """E max(0, mean + spread Z) by the midpoint rule, over what is above 0 within ten spreads."""
    low, high = max(0.0, mean - 10.0 * spread), max(0.0, mean + 10.0 * spread)
    width = (high - low) / steps
    total = 0.0
    for step in range(steps):
        x = low + (step + 0.5) * width
        z = (x - mean) / spread
        total += x * math.exp(-0.5 * z * z)
    return total * width / (spread * math.sqrt(2.0 * math.pi))


@pytest.mark.parametrize("spread", [0.1, 1.0, 7.5])
@pytest.mark.parametrize("mean", [-9.0, -0.1, 0.0, 2.0, 40.0])
def test_the_expected_excess_is_that_of_a_normal_queue(mean, spread):
    """To a millionth of the spread."""
    excess = adaptive.expected_excess(mean, spread)
    assert excess == pytest.approx(integrated_excess(mean, spread), abs=1e-6 * spread)


def kappa(load):
    """Section 1: two standard errors below, of a window of 32 departures, within 1 and 3."""
    return min(max(load - 2.0 * math.sqrt(load / 64.0), 1.0), 3.0)


def load_upper(load):
    """Section 1: two above, at most 1."""
    return min(1.0, min(load, 1.0) + 2.0 * math.sqrt(min(load, 1.0) / 64.0))


@given(st.floats(0.0, 20.0))
def test_overload_and_drain_are_on_the_safe_side(load):
    """As the decision has them, where shortcuts are taken too."""
    assert report_terms.overload(load) == pytest.approx(kappa(load), rel=1e-15)
    assert report_terms.load_at_most(load) == pytest.approx(load_upper(load), rel=1e-15)


@pytest.mark.parametrize(
    ("since_s", "period_s", "age_s"),
    [
        (0.02, 0.05, 0.02),
        (0.2, 0.05, 0.05),
        (0.3, 0.05, 0.05),
        (0.31, 0.05, 0.31),
        (0.2, 10.0, 0.2),
        (7.0, 10.0, 7.0),
        (-0.002, 0.05, 0.0),
    ],
)
def test_what_is_not_said_again_has_not_changed(since_s, period_s, age_s):
    """Repeats are left out for 0.3 s: within that, knowledge is as old as reports are apart at
    most. What is told late of an earlier instant finds it new, not of an age below 0."""
    assert adaptive.known_age_s(since_s, period_s) == age_s


# --- the choice -------------------------------------------------------------------------------


def first_departure(residual, load, servers):
    """Section 1: of an excess over exponential work, as much as load does not level out."""
    excess = max(residual - 1.0, 0.0)
    return residual - min(load, 1.0) ** 3 * excess * (1.0 - 1.0 / servers)


def known_age_s(since_s, period_s):
    return max(0.0, min(since_s, period_s)) if since_s <= 0.3 else since_s


class Twin:
    """Section 1 of the decision, line by line, with dicts and lists, and no regard to time."""

    def __init__(self, own, near, eligible):
        self.own, self.near = own, near
        self.eligible = [y for y, can in enumerate(eligible) if can]
        first = first_departure(own.residual, own.load, own.servers)
        self.here_s = own.departure_s * (own.queue_length + first)
        way = 1.0 - 0.25 * min(own.load, 1.0) ** 2
        if own.load - 3.0 * math.sqrt(own.load / 64.0) > 1.0:
            way -= 0.65 * min(max((self.load_around() - 0.7) / 0.15, 0.0), 1.0)
        self.omega = 1.0 if own.hops else min(way, 1.0 / kappa(own.load))

    def load_around(self):
        own, near = self.own, self.near
        rates = [(1.0 / max(own.departure_s, 1e-6), own.load)]
        rates += [(1.0 / self.departure_s(y), near.load[y]) for y in self.eligible]
        return sum(rate * load for rate, load in rates) / sum(rate for rate, _ in rates)

    def departure_s(self, y):
        told_s = self.near.departure_s[y]
        return max(told_s if told_s > 0 else self.own.service_s / self.near.servers[y], 1e-6)

    def heard_s_ago(self, y):
        return known_age_s(self.own.now_s - self.near.told_s[y], self.near.period_s)

    def age_s(self, y):
        return self.heard_s_ago(y) + 2.0 * self.near.delays_s[y]

    def sigma(self, y):
        return 0.5 * math.sqrt(2.0 * self.age_s(y) / self.departure_s(y))

    def wait_s(self, y):
        departure_s, near = self.departure_s(y), self.near
        drain = (1.0 - load_upper(near.load[y])) * min(self.age_s(y), 8.0 * departure_s)
        length = near.ahead[y] + self.own.unreported[y] - drain / departure_s
        first = first_departure(near.residual[y], near.load[y], near.servers[y])
        mean, sigma = max(length, -near.servers[y]) + first, self.sigma(y)
        if sigma == 0.0:
            return departure_s * max(0.0, mean)
        z = mean / sigma
        phi = math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
        return departure_s * (mean * (1.0 + math.erf(z / math.sqrt(2.0))) / 2.0 + sigma * phi)

    def cost_s(self, y):
        way_s = self.omega * self.near.delays_s[y]
        return self.wait_s(y) * kappa(self.near.load[y]) / kappa(self.own.load) + way_s

    @property
    def trust(self):
        slower_s = {y: max(self.departure_s(y), self.own.departure_s) for y in self.eligible}
        ages = [self.heard_s_ago(y) / slower_s[y] for y in self.eligible]
        return math.exp(-sum(ages) / len(ages) / 16.0)

    def by_load(self):
        """The shares of those that cost less than staying; none where nobody does."""
        costs_s = {y: self.cost_s(y) for y in self.eligible}
        if self.own.may_keep:
            costs_s = {y: cost_s for y, cost_s in costs_s.items() if cost_s < self.here_s}
        least_s = min(costs_s.values(), default=0.0)
        weights = {}
        for y, cost_s in costs_s.items():
            unsure_s = self.departure_s(y) * self.sigma(y)
            if unsure_s > 0.0:
                weights[y] = math.exp(-(cost_s - least_s) / unsure_s)
            else:
                weights[y] = float(cost_s == least_s)
        return shares(weights)

    def by_draw(self):
        """Those of the paper among the neighbors that would nearly be worth the way if they were
        idle, and were not hopeless."""
        own, near = self.own, self.near
        worth = [
            y
            for y in self.eligible
            if not own.may_keep
            or (
                self.here_s > 0.7 * self.omega * near.delays_s[y]
                and near.ahead[y] * self.departure_s(y) <= 8.0 * (self.here_s + near.delays_s[y])
            )
        ]
        reject = own.queue_length / (own.queue_length + own.servers) if own.may_keep else 1.0
        if not worth or not reject:
            return {KEEP: 1.0}
        weights = {y: max(0.0, 1.0 - near.reject_near[y] / reject) for y in worth}
        if not any(weights.values()):
            weights = dict.fromkeys(worth, 1.0)
        picked = {y: reject * share for y, share in shares(weights).items()}
        return {KEEP: 1.0 - reject, **picked}

    def choose(self, draw):
        """Walks along the shares, and finds the draw too near to a break point (None)."""
        if not self.eligible:
            return KEEP
        if self.own.hops == 0:
            if abs(draw - self.trust) < 1e-9:
                return None
            if draw >= self.trust:
                return walk(self.by_draw(), (draw - self.trust) / (1.0 - self.trust))
            draw /= self.trust
        return walk(self.by_load() or {KEEP: 1.0}, draw)


def shares(weights):
    total = sum(weights.values())
    return {y: weight / total for y, weight in weights.items() if weight > 0.0}


def walk(shares, draw):
    reached = 0.0
    for choice, share in shares.items():
        if abs(draw - reached) < 1e-7 and reached > 0.0:
            return None
        reached += share
        if draw < reached:
            return choice
    return None


@st.composite
def situations(draw, most=6):
    """Whatever a cluster may know: idle and swamped neighbors, near and far ones, some that tell no
    departure, old and fresh knowledge, services that take no time."""
    count = most if most == 1 else draw(st.integers(0, most))

    def each(values):
        return tuple(draw(st.lists(values, min_size=count, max_size=count)))

    service_s = draw(st.sampled_from([0.0, 0.04, 1.0]))
    servers = each(st.integers(1, 8))
    own = own_load(
        draw(st.integers(0, 40)),
        draw(st.integers(1, 8)),
        draw(st.booleans()),
        service_s,
        residual=draw(st.sampled_from([0.5, 1.0, 5.0])),
        load=draw(st.floats(0.0, 5.0)),
        hops=draw(st.integers(0, 2)),
        now_s=100.0,
        unreported=each(st.integers(0, 9)),
    )
    near = neighbor_loads(
        each(st.floats(0.0, 1.0)),
        each(st.integers(0, 60)),
        each(st.sampled_from([0.0, 0.001, 0.035, 1.0])),
        servers=servers,
        ahead=tuple(draw(st.integers(-m, 60)) for m in servers),
        load=each(st.floats(0.0, 5.0)),
        departure_s=each(st.sampled_from([0.0, 0.001, 0.008, 0.5])),
        residual=each(st.floats(0.5, 5.0)),
        told_s=each(st.sampled_from([100.0, 100.002, 99.98, 99.8, 99.0, 80.0, 0.0])),
    )
    return own, near, each(st.booleans())


def choose(own, near, eligible, draw):
    """The real function and the weights it wrote, over a buffer full of rubbish."""
    weights = [7.0] * len(eligible)
    return adaptive.choose(own, near, eligible, weights, draw), weights


@given(situations(), draws)
def test_a_draw_chooses_where_the_twin_says(situation, draw):
    """Away from break points, where rounding decides."""
    twin = Twin(*situation)
    expected = twin.choose(draw)
    assume(expected is not None)
    # Where a cost is within rounding of the wait here, either is right.
    near_ties = [abs(twin.cost_s(y) - twin.here_s) for y in twin.eligible]
    assume(not near_ties or min(near_ties) > 1e-12)
    assert choose(*situation, draw)[0] == expected


@given(situations(), draws)
def test_it_keeps_exactly_where_nothing_costs_less(situation, draw):
    """By load, that is, with fresh knowledge or for what was handed on before."""
    own, near, eligible = situation
    twin = Twin(own._replace(hops=1), near, eligible)
    assume(all(abs(twin.cost_s(y) - twin.here_s) > 1e-12 for y in twin.eligible))
    choice, weights = choose(own._replace(hops=1), near, eligible, draw)
    better = [y for y in twin.eligible if not own.may_keep or twin.cost_s(y) < twin.here_s]
    assert (choice == KEEP) == (not better)
    assert [y for y, weight in enumerate(weights) if weight] == [
        y for y in better if weights[y] > 0.0
    ]
    if better:
        cheapest = min(better, key=twin.cost_s)
        assert weights[cheapest] == pytest.approx(1.0, rel=1e-6)


def five(queue_length=4, load=0.9, **told):
    """One of the five of `ring5`, and its two neighbors."""
    own = own_load(queue_length, 5, residual=0.5, load=load, now_s=1.0, unreported=(0, 0), **told)
    return own, {"departure_s": (0.008, 0.008), "residual": (0.5, 0.5), "told_s": (1.0, 1.0)}


@given(st.integers(1, 5000), st.sampled_from([1e-4, 0.001, 0.04]), st.floats(0.0, 0.05))
def test_beside_short_services_what_is_known_of_them_is_not_old(servers, there_s, since_s):
    """A cluster of second-long services has just filled up: by the paper's draw an empty queue
    keeps what comes. Idle servers that were told of within a twentieth of a departure here get it,
    however many departures they had since."""
    own = own_load(0, 1, service_s=1.0, now_s=1.0, unreported=(0,))
    told = {"ahead": (-servers,), "departure_s": (there_s / servers,), "told_s": (1.0 - since_s,)}
    near = neighbor_loads((0.0,), (0,), (0.005,), servers=servers, **told)
    moved = [choose(own, near, (True,), k / 100)[0] == 0 for k in range(100)]
    assert sum(moved) >= 99


@given(situations(), draws, st.sampled_from([0.1, 20.0]))
def test_where_nothing_has_begun_for_long_it_goes_to_idle_servers_or_a_shorter_line(
    situation, draw, still_s
):
    """If they are nearer than nothing has begun here: the nearest idle ones, then the shortest line
    for each server. Else as ever."""
    own, near, eligible = situation
    stuck = own._replace(still_s=still_s)
    lines = {
        y: (near.ahead[y] + own.unreported[y]) / near.servers[y]
        for y, can in enumerate(eligible)
        if can and near.delays_s[y] < still_s
    }
    idle = [near.delays_s[y] for y, line in lines.items() if line < 0]
    shorter = [line for line in lines.values() if line < own.queue_length / own.servers]
    choice, _ = choose(stuck, near, eligible, draw)
    if not shorter or not own.may_keep or still_s <= 8.0 * own.service_s:
        assert choice == choose(own, near, eligible, draw)[0]
    elif idle:
        assert lines[choice] < 0
        assert near.delays_s[choice] == min(idle)
    else:
        assert lines[choice] == min(shorter)


def test_the_ends_of_the_draw_are_safe():
    """Also where what is left of it after the first stage is rounded up to 1."""
    random = Random(7)
    for _ in range(300):
        own, told = five(random.randrange(3), load=random.random())
        told["told_s"] = (1.0 - 0.3 * random.random(),) * 2
        near = neighbor_loads((0.5, 0.5), (0, 0), (0.035,) * 2, servers=5, **told)
        for draw in (0.0, ALMOST_ONE):
            for may_keep in (True, False):
                choice, _ = choose(own._replace(may_keep=may_keep), near, (True, True), draw)
                assert choice in {KEEP, 0, 1}
