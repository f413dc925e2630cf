"""Quotas of tenants, beside a twin that keeps all requests in a list and reckons with fractions."""

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from spillover.core.overflow.quotas import Quotas
from spillover.model.access import NO_QUOTA, Quota

TENANTS = ("shop", "bank")
QUOTAS = st.builds(
    Quota,
    st.none() | st.integers(1, 3),
    st.none() | st.integers(1, 3),
    st.none() | st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(TENANTS)),
        st.tuples(st.sampled_from(["leave", "end"]), st.integers(0, 30)),
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("go by"), st.dictionaries(st.sampled_from(TENANTS), QUOTAS)),
    ),
    max_size=60,
)


class Twin:
    """What quotas mean, said slowly. Times are eighths of a second, exact in floats too."""

    def __init__(self, quotas):
        self.quotas = dict(quotas)
        self.requests = []
        """[ref, tenant, state]"""
        self.allowed = {}
        self.at = {}

    def quota(self, tenant):
        return self.quotas.get(tenant, NO_QUOTA)

    def burst(self, tenant):
        return max(Fraction(1), Fraction(self.quota(tenant).requests_per_s or 0))

    def count(self, tenant, state):
        return sum(one[1:] == [tenant, state] for one in self.requests)

    def ask(self, tenant, now):
        quota = self.quota(tenant)
        if quota.max_queued is not None and self.count(tenant, "queued") >= quota.max_queued:
            return "max_queued"
        running = self.count(tenant, "running")
        if quota.max_queued is None:
            running += self.count(tenant, "queued")
        if quota.max_running is not None and running >= quota.max_running:
            return "max_running"
        if quota.requests_per_s is None:
            return None
        rate = Fraction(quota.requests_per_s)
        self.allowed[tenant] += (now - self.at[tenant]) * rate
        self.allowed[tenant] = min(self.allowed[tenant], self.burst(tenant))
        self.at[tenant] = now
        if self.allowed[tenant] < 1:
            return "requests_per_s"
        self.allowed[tenant] -= 1
        return None

    def go_by(self, quotas, now):
        self.quotas = dict(quotas)
        for tenant in TENANTS:
            if tenant in quotas and tenant not in self.allowed:
                self.allowed[tenant], self.at[tenant] = self.burst(tenant), now
            elif tenant in self.allowed:
                self.allowed[tenant] = min(self.allowed[tenant], self.burst(tenant))

    def move(self, ref, state):
        for one in self.requests:
            if one[0] == ref and not (state == "running" and one[2] != "queued"):
                one[2] = state


@given(st.dictionaries(st.sampled_from(TENANTS), QUOTAS, min_size=2), STEPS)
def test_quotas_are_what_the_twin_says(quotas, steps):
    table, twin, now = Quotas(), Twin({}), Fraction(0)
    table.go_by(quotas, 0.0)
    twin.go_by(quotas, now)
    for number, (step, what) in enumerate(steps):
        if step == "wait":
            now += Fraction(what, 8)
        elif step == "go by":
            table.go_by(what, float(now))
            twin.go_by(what, now)
        elif step == "ask":
            excess, expected = table.ask(what, float(now)), twin.ask(what, now)
            assert (excess.limit if excess else None) == expected
            if excess is None:
                table.take(number, what)
                twin.requests.append([number, what, "queued"])
            else:
                assert excess.retry_after_s > 0
        elif step == "leave":
            table.leave_queue(what)
            twin.move(what, "running")
        else:
            table.end(what)
            twin.move(what, "ended")
        table.check()
        for tenant, use in table.uses.items():
            assert use.queued == twin.count(tenant, "queued")
            assert use.running == twin.count(tenant, "running")


def test_who_waits_as_long_as_told_is_let_through():
    table = Quotas()
    table.go_by({"shop": Quota(requests_per_s=0.3)}, 0.0)
    now_s = 0.0
    assert table.ask("shop", now_s) is None
    for _ in range(50):
        excess = table.ask("shop", now_s)
        assert excess.limit == "requests_per_s"
        now_s += excess.retry_after_s + 1e-9
        assert table.ask("shop", now_s) is None


def test_nobody_is_told_to_wait_longer_than_it_takes():
    table = Quotas()
    table.go_by({"shop": Quota(requests_per_s=0.5)}, 0.0)
    assert table.ask("shop", 0.0) is None
    assert [table.ask("shop", now_s).retry_after_s for now_s in (0.0, 0.5, 1.5)] == [2.0, 1.5, 0.5]


def test_sessions_are_counted_apart_and_one_that_comes_again_takes_its_own_place():
    table = Quotas()
    table.go_by({"shop": Quota(max_sessions=1), "bank": Quota()}, 0.0)
    begin = table.begin_session
    assert begin("shop", 0.0, in_place=False) is None
    assert begin("shop", 0.0, in_place=False).limit == "max_sessions"
    assert begin("shop", 0.0, in_place=True) is None  # the one before ends a moment later
    table.end_session("shop")
    assert begin("shop", 0.0, in_place=False) is not None
    assert all(begin("bank", 0.0, in_place=False) is None for _ in range(9))
    table.end_session("shop")
    assert begin("shop", 0.0, in_place=False) is None
    assert table.uses["shop"].limited["max_sessions"] == 2
    table.check()


NODES = st.integers(1, 3)
AT_NODES = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), NODES),
        st.tuples(st.sampled_from(["leave", "end"]), st.integers(0, 30)),
        st.tuples(st.just("wait"), st.integers(1, 8)),
        st.tuples(st.just("tell"), NODES),
    ),
    max_size=80,
)


class Home:
    """Three nodes of a home that tell each other of the tenant `shop`."""

    def __init__(self, quota):
        self.nodes = {number: Quotas() for number in (1, 2, 3)}
        self.taken = {}
        """Where each request is."""
        for table in self.nodes.values():
            table.go_by({"shop": quota}, 0.0)
        for number in self.nodes:
            self.tell(number, 0.0)

    def tell(self, number, now):
        news = self.nodes[number].news(9)
        for other, table in self.nodes.items():
            if other != number:
                table.hear(number, news, now)

    def ask(self, ref, node, now):
        excess = self.nodes[node].ask("shop", now)
        if excess is None:
            self.nodes[node].take(ref, "shop")
            self.taken[ref] = node
        return excess

    def becomes(self, step, ref):
        if (node := self.taken.get(ref)) is not None:
            {"leave": self.nodes[node].leave_queue, "end": self.nodes[node].end}[step](ref)


@given(QUOTAS, AT_NODES)
def test_nodes_that_tell_each_other_at_once_are_one_home(quota, steps):
    home, one, now = Home(quota), Quotas(), Fraction(0)
    one.go_by({"shop": quota}, 0.0)
    for number, (step, what) in enumerate(steps):
        if step == "wait":
            now += Fraction(what, 8)
        elif step == "ask":
            found, expected = home.ask(number, what, float(now)), one.ask("shop", float(now))
            assert found == expected
            if found is None:
                one.take(number, "shop")
        elif step != "tell":
            home.becomes(step, what)
            {"leave": one.leave_queue, "end": one.end}[step](what)
        for node in home.nodes:
            home.tell(node, float(now))


@given(st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0]), AT_NODES)
def test_a_rate_is_exceeded_by_no_more_than_was_not_told_yet(rate, steps):
    """And in the long run not at all: what was too much is paid back by all."""
    home, now = Home(Quota(None, None, rate)), Fraction(0)
    let_in, told, told_s = Counter(), Counter(), dict.fromkeys((1, 2, 3), Fraction(0))
    for number, (step, what) in enumerate(steps):
        if step == "wait":
            now += Fraction(what, 8)
        for node in home.nodes:
            if (step, what) == ("tell", node) or now >= told_s[node] + 1:
                home.tell(node, float(now))
                told[node], told_s[node] = let_in[node], now
        if step == "ask" and home.ask(number, what, float(now)) is None:
            let_in[what] += 1
            known = let_in[what] + sum(told[node] for node in (1, 2, 3) if node != what)
            assert known <= max(1, Fraction(rate)) + Fraction(rate) * now
        for table in home.nodes.values():
            table.check()


def test_what_a_lost_node_had_let_in_counts_no_more():
    home = Home(Quota(None, 1, None))
    assert home.ask(1, 1, 0.0) is None
    home.tell(1, 0.0)
    assert home.ask(2, 2, 0.0).limit == "max_running"
    home.nodes[2].lost(1)
    assert home.ask(2, 2, 0.0) is None
    home.nodes[1].tell_all()
    assert home.nodes[1].news(9)["shop"].queued == 1
    assert not home.nodes[1].news(9)


def test_news_of_many_tenants_come_in_turn():
    """No tenant waits behind those that have news at each time."""
    table = Quotas()
    table.go_by({str(number): Quota(9, 9, None) for number in range(5)}, 0.0)
    assert [list(table.news(2)) for _ in range(4)] == [["0", "1"], ["2", "3"], ["4"], []]
    for tenant in "02":
        table.ask(tenant, 0.0)
    assert list(table.news(1)) == ["0"]
    table.ask("0", 0.0)
    assert list(table.news(1)) == ["2"]
    table.not_told(table.news(1))
    table.ask("4", 0.0)
    assert [list(table.news(1)) for _ in range(3)] == [["4"], ["0"], []]
