"""Stories of limits that change while requests are here."""

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.decisions import describe
from spillover.core.overflow.sibling_messages import NO_VIEW, Frozen, SiblingLoad
from spillover.model.request import Refusal
from support.typed_sites import Site, linked, unlike


def reported(commands):
    (publish,) = [one for one in commands if isinstance(one, ev.Publish)]
    return publish.report


def refusals(commands):
    return [one.reason for one in commands if isinstance(one, ev.Refuse)]


def test_more_servers_take_what_waits_at_once(story):
    """And neighbors hear of them."""
    node = story(servers=1)
    node.fill(1, 2, 3, 4)
    start2, start3, publish = node.tell(ev.SettingsChanged(servers=3), 5.0)
    assert (start2, start3) == (node.start(2, 5.0), node.start(3, 5.0))
    assert (publish.report.servers, publish.report.ahead) == (3, 1)
    assert publish.report.departure_s == pytest.approx(0.04 / 3)
    assert publish.report.accept_probability == 3 / (1 + 3)


def test_a_server_that_is_to_go_and_is_stuck_is_not_counted_on(story):
    """None may ever be free: neighbors are told so."""
    node = story(servers=3)
    node.fill(1, 2, 3)
    node.tell(ev.Cancelled(1))
    node.tell(ev.Cancelled(2))
    report = reported(node.tell(ev.SettingsChanged(servers=1)))
    assert (report.accepting, report.accept_probability) == (False, 0.0)
    assert refusals(node.arrive(4, path=("b",))) == [Refusal.NO_SERVERS]
    node.tell(ev.ServiceEnded(1, "cancelled", 0.0))
    node.tell(ev.ServiceEnded(2, "cancelled", 0.0))
    assert node.machine.servers.working == 1
    assert not refusals(node.arrive(5, path=("b",)))


def test_bytes_beyond_a_lower_limit_stay_held(story):
    """Nothing more comes in until fewer are; and what is too large for any room says so."""
    node = story(held_limit_bytes=8000)
    node.arrive(1, size_bytes=3000)
    node.tell(ev.BytesMoving(0, 4000))
    report = reported(node.tell(ev.SettingsChanged(held_limit_bytes=1600)))
    assert not report.accepting
    assert refusals(node.arrive(2, size_bytes=100)) == [Refusal.MEMORY_FULL]
    assert refusals(node.arrive(3, size_bytes=4000)) == [Refusal.TOO_LARGE]
    node.end(1)
    assert node.machine.accepting, "what was wanted before can never fit, and keeps nobody out"
    assert not refusals(node.arrive(4, size_bytes=100))


def test_the_servers_of_an_unlike_pool_are_not_for_a_configuration_to_change():
    """That is said, and nothing else of it is done either; other limits may change."""
    a = Site(linked(unlike("a", {"llm": "big"}, queue_limit=5)))
    (refused,) = a.tell(ev.SettingsChanged(servers=4, queue_limit=9))
    assert isinstance(refused, ev.SettingsRefused)
    assert "unlike" in refused.reason
    assert a.machine.settings.queue_limit == 5
    a.tell(ev.SettingsChanged(queue_limit=9))
    assert a.machine.settings.queue_limit == 9


def test_a_cluster_that_gets_other_nodes_has_its_servers_until_those_are_heard(story):
    """What waits and runs stays where it is, and a node that comes has servers as soon as it needs
    them."""
    node = story(servers=2)
    node.fill(1, 2, 3)
    node.tell(ev.SettingsChanged(nodes=2), 1.0)
    machine = node.machine
    assert (machine.servers.total, machine.servers.busy, machine.servers.waiting) == (2, 2, 1)
    assert node.start(3, 1.1) in node.end(1, 1.1)
    node.tell(ev.SiblingHeard(2, SiblingLoad((1,), NO_VIEW, 4, 0, 0, 0.5, 0.0)), 1.2)
    node.tell(ev.SiblingHeard(2, Frozen((2, 1), 0, is_fresh=True, busy_for_s=0.0)), 1.2)
    node.end(2, 1.3)
    assert (machine.servers.total, machine.servers.site_total) == (1, 2), "one has been given"


def test_what_is_kept_where_a_sibling_has_all_servers_is_explained(story):
    """By those of the site: a node may have none itself."""
    node = story(servers=2, nodes=2)
    idle = SiblingLoad((1,), NO_VIEW, 0, 0, 2, 0.0, 0.0)
    node.tell(ev.SiblingHeard(2, idle), 1.0)
    node.tell(ev.SiblingHeard(2, Frozen((1, 1), 2, is_fresh=False, busy_for_s=0.0)), 1.0)
    node.arrive(1, 1.1)
    assert (node.machine.servers.total, node.machine.servers.waiting) == (0, 1)
    told = describe(node.machine.decider.log.last)
    assert (told["servers"], told["accept_probability"]) == (2, 1.0)
