"""Adaptive against a plain twin written from decision 0037, its formulas against closed forms, and
what it must never do."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spillover.policy.overflow import adaptive, report_terms
from spillover.policy.overflow.base import KEEP
from support.loads import neighbor_loads, own_load, worked_out

ALMOST_ONE = 1.0 - 2.0**-53
draws = st.floats(0.0, ALMOST_ONE)


# --- the formulas -----------------------------------------------------------------------------


def integrated_excess(mean, spread, steps=20_000):
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
@pytest.mark.parametrize("mean", [-9.0, -1.0, -0.1, 0.0, 0.3, 2.0, 40.0])
def test_the_expected_excess_is_that_of_a_normal_queue(mean, spread):
    """To a millionth of the spread."""
    excess = adaptive.expected_excess(mean, spread)
    assert excess == pytest.approx(integrated_excess(mean, spread), abs=1e-6 * spread)


@given(st.floats(-1e3, 1e3), st.floats(0.0, 1e3))
def test_the_expected_excess_lies_between_its_bounds(mean, spread):
    """At least what there is for sure, at most that and what chance adds to an empty queue."""
    excess = adaptive.expected_excess(mean, spread)
    least, rounding = max(0.0, mean), 1e-300 + 1e-12 * (abs(mean) + spread)
    assert least - rounding <= excess <= least + spread / math.sqrt(2.0 * math.pi) + rounding


@given(st.floats(-50.0, 50.0), st.floats(-50.0, 50.0), st.floats(0.01, 50.0))
def test_the_expected_excess_grows_with_the_queue_and_with_what_is_not_known(mean, more, spread):
    low, high = sorted((mean, more))
    rounding = 1e-12 * (abs(low) + abs(high) + spread)
    excess = adaptive.expected_excess
    assert excess(low, spread) <= excess(high, spread) + rounding
    assert excess(low, spread) <= excess(low, 2.0 * spread) + rounding


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
    ("load", "over", "at_most"),
    [
        (0.0, 1.0, 0.0),
        (0.25, 1.0, 0.375),
        (report_terms.DRAINS_BELOW, 1.0, 1.0),
        (1.0, 1.0, 1.0),
        (1.28, 1.0, 1.0),
        (2.25, 1.875, 1.0),
        (100.0, 3.0, 1.0),
    ],
)
def test_what_noise_could_be_is_no_overload(load, over, at_most):
    """A load of 1.28 may be one of 1; 2.25 is 1.875 at least; nothing counts more than thrice."""
    assert (report_terms.overload(load), report_terms.load_at_most(load)) == (over, at_most)


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


def test_a_queue_drains_while_the_request_is_on_its_way():
    """Six wait at one departure each 10 ms, no arrivals. Told 40 ms before the request arrives, two
    are left; after 8 departures no more drain is believed; with arrivals as fast, there is none."""

    def wait_s(age_s, load=0.0):
        return adaptive.wait_after_s(6.0, 5, load, 1.0, 0.01, age_s)

    assert wait_s(0.0) == pytest.approx(0.07)
    assert wait_s(0.04) == pytest.approx(0.01 * integrated_excess(3.0, 0.5 * math.sqrt(8.0)))
    assert wait_s(0.8) == pytest.approx(0.01 * integrated_excess(-1.0, 0.5 * math.sqrt(160.0)))
    drained_half = adaptive.wait_after_s(6.0, 5, 0.25, 1.0, 0.01, 0.04)
    assert drained_half == pytest.approx(0.01 * integrated_excess(4.5, 0.5 * math.sqrt(8.0)))
    assert wait_s(0.04, load=0.9) == pytest.approx(
        0.01 * integrated_excess(7.0, 0.5 * math.sqrt(8.0))
    )


def test_no_cluster_has_more_idle_servers_than_servers():
    """Drain ends there."""
    wait_s = adaptive.wait_after_s(-1.0, 2, 0.0, 0.5, 0.01, 0.08)
    assert wait_s == pytest.approx(0.01 * integrated_excess(-1.5, 0.5 * math.sqrt(16.0)))


def test_constant_work_waits_half_a_departure_less():
    """(1 + c2) / 2 of a service is left of one under way."""
    constant, exponential = own_load(4, 5, residual=0.5), own_load(4, 5, residual=1.0)
    waits_s = adaptive.wait_here_s(constant), adaptive.wait_here_s(exponential)
    assert waits_s == (pytest.approx(4.5 * 0.008), pytest.approx(5.0 * 0.008))


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


@given(situations(), draws)
def test_only_eligible_neighbors_are_chosen_and_weighed(situation, draw):
    """And all weights are numbers: nothing that may be told makes a NaN of them."""
    own, near, eligible = situation
    choice, weights = choose(own, near, eligible, draw)
    assert choice == KEEP or eligible[choice]
    assert all(0.0 <= weight <= 1.0 for weight in weights)
    assert all(can or not weight for can, weight in zip(eligible, weights, strict=True))
    assert choice == KEEP or not any(weights) or weights[choice] > 0.0


@given(situations(), draws)
def test_what_may_not_stay_goes_wherever_it_may(situation, draw):
    """KEEP comes out only where nobody is eligible."""
    own, near, eligible = situation
    choice, _ = choose(own._replace(may_keep=False), near, eligible, draw)
    assert (choice == KEEP) == (not any(eligible))


@given(situations())
def test_the_measure_of_the_draws_is_the_share(situation):
    """One draw decides all: over 401 of them, each choice comes as often as the twin says."""
    own, near, eligible = situation
    twin = Twin(own, near, eligible)
    assume(all(abs(twin.cost_s(y) - twin.here_s) > 1e-12 for y in twin.eligible))
    count = 401
    choices = [choose(own, near, eligible, (k + 0.5) / count)[0] for k in range(count)]
    trust = 1.0 if own.hops or not twin.eligible else twin.trust
    by_load = (twin.by_load() if twin.eligible else {}) or {KEEP: 1.0}
    by_draw = twin.by_draw() if trust < 1.0 else {}
    for choice in range(KEEP, len(eligible)):
        share = trust * by_load.get(choice, 0.0) + (1.0 - trust) * by_draw.get(choice, 0.0)
        assert choices.count(choice) == pytest.approx(share * count, abs=2.5)


@given(situations(1))
def test_a_neighbor_known_to_the_instant_is_never_a_loss(situation):
    """Where nothing is old and there is no way, a request moves only to a wait that is shorter: the
    longer queue never gets it, whatever the draw."""
    own, near, _ = situation
    assume(own.may_keep)
    near = near._replace(told_s=(own.now_s,), delays_s=(0.0,), load=(0.0,))
    near = near._replace(**worked_out(near.servers, near.load, near.residual))
    own = own._replace(load=0.0)
    choice, _ = choose(own, near, (True,), 0.5)
    length = max(near.ahead[0] + own.unreported[0] + near.residual[0], 0.0)
    there_s = max(near.departure_s[0], 1e-6) * length
    assume(near.departure_s[0] > 0.0)
    assume(abs(there_s - adaptive.wait_here_s(own)) > 1e-9)
    assert (choice == 0) == (there_s < adaptive.wait_here_s(own))


def five(queue_length=4, load=0.9, **told):
    """One of the five of `ring5`, and its two neighbors."""
    own = own_load(queue_length, 5, residual=0.5, load=load, now_s=1.0, unreported=(0, 0), **told)
    return own, {"departure_s": (0.008, 0.008), "residual": (0.5, 0.5), "told_s": (1.0, 1.0)}


def test_of_two_neighbors_the_less_loaded_is_likelier_and_surely_taken_if_fresh():
    """Three departures' difference at no way, then what of it is left with 35 ms."""
    own, told = five(20)
    told |= {"ahead": (2, -1), "load": (0.9, 0.9)}
    near = neighbor_loads((0.0, 0.0), (0, 0), (0.0, 0.0), servers=5, **told)
    _, weights = choose(own, near, (True, True), 0.5)
    assert weights == [0.0, 1.0]
    far = near._replace(delays_s=(0.035, 0.035))
    _, weights = choose(own, far, (True, True), 0.5)
    assert weights[1] == 1.0
    assert 0.1 < weights[0] < 0.9


def test_own_sends_that_are_not_told_of_count():
    """Else all of a burst would go to the same neighbor."""
    own, told = five(20)
    near = neighbor_loads((0.0, 0.0), (0, 0), (0.0, 0.0), servers=5, ahead=(0, 0), **told)
    assert choose(own._replace(unreported=(3, 0)), near, (True, True), 0.5)[0] == 1
    assert choose(own._replace(unreported=(0, 3)), near, (True, True), 0.5)[0] == 0


def test_what_was_handed_on_before_pays_the_whole_way():
    """3.5 departures here are 28 ms, less than the way of 35 ms to an idle server; a home request
    pays 26 ms of it at load 1, and moves."""
    own, told = five(3, load=1.0)
    near = neighbor_loads((0.0,) * 2, (0, 0), (0.035,) * 2, servers=5, ahead=(-5, -5), **told)
    assert choose(own, near, (True, True), 0.0)[0] != KEEP
    assert choose(own._replace(hops=1), near, (True, True), 0.0)[0] == KEEP


def test_a_cluster_that_is_surely_overloaded_hands_on_sooner():
    """Each request it keeps delays all that follow."""
    own, told = five(6, load=1.0)
    told |= {"ahead": (4, 4), "load": (0.9, 0.9)}
    near = neighbor_loads((0.0,) * 2, (0, 0), (0.035,) * 2, servers=5, **told)
    assert choose(own, near, (True, True), 0.0)[0] == KEEP
    assert choose(own._replace(load=3.0), near, (True, True), 0.0)[0] != KEEP


def test_with_age_the_choices_become_the_papers():
    """Of a neighbor whose queue was long: never while that is fresh, as often as the paper would
    when it is old."""
    own, told = five(15)
    ages_s = (0.0, 1.0, 60.0)
    moved = []
    for age_s in ages_s:
        told["told_s"] = (1.0 - age_s,) * 2
        near = neighbor_loads((0.1,) * 2, (90, 90), (0.035,) * 2, servers=5, **told)
        moved.append(sum(choose(own, near, (True, True), k / 1000)[0] != KEEP for k in range(1000)))
    assert moved[0] == 0
    assert moved[1] == pytest.approx(750 * (1.0 - math.exp(-1.0 / 0.008 / 16.0)), abs=2)
    assert moved[2] == 750


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


@given(situations(), st.floats(1.0, 100.0))
def test_the_slower_side_counts_the_age(situation, slower):
    """Slower services here never make what is known older, and make it no newer while those of all
    neighbors are slower still."""
    own, near, eligible = situation
    assume(any(eligible) and all(near.departure_s))
    ages_s = [0.0] * len(eligible)
    age = adaptive.write_ages(own, near, eligible, ages_s)
    slowed = own._replace(departure_s=own.departure_s * slower)
    slowed_age = adaptive.write_ages(slowed, near, eligible, ages_s)
    assert 0.0 <= slowed_age <= age
    slowest_s = min(one_s for one_s, can in zip(near.departure_s, eligible, strict=True) if can)
    assert slowed.departure_s > slowest_s or slowed_age == age


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
    for _ in range(2000):
        own, told = five(random.randrange(3), load=random.random())
        told["told_s"] = (1.0 - 0.3 * random.random(),) * 2
        near = neighbor_loads((0.5, 0.5), (0, 0), (0.035,) * 2, servers=5, **told)
        for draw in (0.0, ALMOST_ONE):
            for may_keep in (True, False):
                choice, _ = choose(own._replace(may_keep=may_keep), near, (True, True), draw)
                assert choice in {KEEP, 0, 1}
