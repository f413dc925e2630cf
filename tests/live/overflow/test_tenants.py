"""What a node tells of its tenants: each of those that are shown by itself, the rest as one."""

import msgspec

from spillover.core.overflow import events as ev
from spillover.core.overflow.quotas import MAX_QUEUED
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.tenants import Tenants
from spillover.model.access import ApiToken, Quota
from spillover.model.ids import request_id_of
from spillover.model.request import DONE, Request
from spillover.model.signals.tenants import TENANTS_SHOWN_MAX
from support.federation import topology_of

URLS = {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"}
LONG = {"a": {"service_ms": 60_000.0}}


def tokens(*tenants, quota=Quota()):  # noqa: B008 - never changed
    return [ApiToken(f"{one}'s", b"", one, frozenset(), quota) for one in tenants]


class Here:
    """A shell that nobody runs, and its tenants."""

    def __init__(self, of):
        topology = topology_of("a", "b", clusters=LONG).with_urls(URLS)
        self.shell = NodeShell(topology, "a", seed=1)
        self.tenants = Tenants(self.shell, of)
        self.quotas = self.shell.requests.home.quotas

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.quotas.check()
        await self.shell.close()

    def take(self, tenant):
        if self.quotas.ask(tenant, 0.0) is not None:
            return None
        request = Request(request_id_of(tenant, ""), False, msgspec.Raw(b"1"))
        return self.shell.requests.home.take(request, 1e12)

    def told(self, name, **labels):
        """{tenant: value} of one metric, where it is not 0."""
        return {
            sample.labels["tenant"]: sample.value
            for family in self.shell.metrics.registry.collect()
            for sample in family.samples
            if sample.name == f"spillover_tenant_{name}" and sample.value
            and labels.items() <= sample.labels.items()
        }  # fmt: skip


async def test_what_leaves_the_queue_runs_until_it_ends():
    reader = ApiToken("reader's", b"", "", frozenset())
    async with Here([*tokens("shop", "bank"), reader]) as at:
        assert set(at.quotas.uses) == {"shop", "bank"}, "who is of no tenant has no quota"
        first = at.take("shop")
        at.take("shop")
        at.take("bank")
        assert at.told("running") == {"shop": 1}
        assert at.told("queued") == {"shop": 1, "bank": 1}
        assert at.told("requests_total") == {"shop": 2, "bank": 1}
        at.shell.feed(ev.ServiceEnded(first.ref, DONE, 0.1, b"1"))
        assert at.told("running") == {"shop": 1}
        assert at.told("queued") == {"bank": 1}


async def test_what_is_handed_on_has_left_the_queue():
    async with Here(tokens("shop")) as at:
        at.take("shop")
        waits = at.take("shop")
        request = Request(waits.id, False, msgspec.Raw(b"1"), ("a",))
        at.shell.interpreters[ev.Forward](ev.Forward(waits.ref, 0, request, 1e12))
        assert (at.told("queued"), at.told("running")) == ({}, {"shop": 2})
        assert at.shell.metrics.handed_to(0) == (1, 0)


async def test_those_that_are_not_shown_or_not_configured_any_more_are_told_as_one():
    """Also where one is called so itself."""
    names = [f"t{number}" for number in range(TENANTS_SHOWN_MAX + 2)]
    async with Here(tokens(*names)) as at:
        for name in (names[0], *names[-3:]):
            at.take(name)
        assert at.told("requests_total") == {names[0]: 1, names[-3]: 1, "other": 2}
        at.tenants.go_by(tokens(names[0], "other"))
        at.take("other")
        assert at.told("requests_total") == {names[0]: 1, "other": 4}


async def test_which_limit_was_reached_is_told():
    async with Here(tokens("shop", quota=Quota(max_queued=2))) as at:
        taken = [at.take("shop") for _ in range(4)]
        assert [one is None for one in taken] == [False, False, False, True]
        assert at.told("limited_total", limit=MAX_QUEUED) == {"shop": 1}
        assert at.told("limited_total") == {"shop": 1}
