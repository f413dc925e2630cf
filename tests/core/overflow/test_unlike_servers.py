"""The machine over a pool of unlike servers: what it does with a job that is blocked, with servers
that come and go, and with types that are not served."""

import pytest

from spillover.core.overflow import events as ev
from spillover.model.request import Outcome, Refusal
from support.typed_sites import Site, linked, only, plain, unlike

TYPES = {"llm": "big", "any": "big small"}


def site(*others, types=TYPES, **fields):
    """Cluster a: only big serves llm."""
    topology = {name: fields.pop(name) for name in ("links", "policy") if name in fields}
    return Site(linked(unlike("a", types, **fields), *others, **topology))


def started(commands):
    return [(each.ref, each.server) for each in commands if isinstance(each, ev.Start)]


def test_what_is_blocked_is_refused_where_it_is_to_be():
    """At once, also if a neighbor would take it; it is counted by type."""
    a = site(unlike("b", TYPES), on_block="refuse")
    a.hear("b", any=-2, llm=-1)
    a.arrive(1, "llm")
    refuse = only(ev.Refuse, a.arrive(2, "llm"))
    assert (refuse.reason, a.machine.ledger.home["accepted"]) == (Refusal.BLOCKED, 1)
    assert started(a.arrive(3, "any")) == [(3, 1)]
    assert only(ev.Refuse, a.arrive(4, "any", path=("b",))).reason is Refusal.BLOCKED
    assert a.machine.blocked == {"llm": 1, "any": 1}
    assert not a.machine.admission.takes(a.machine.groups.of("llm").fitting)


def test_what_is_blocked_waits_where_it_is_to():
    """No policy is asked, though the neighbor is idle."""
    a = site(unlike("b", TYPES), on_block="queue")
    a.hear("b", any=-2, llm=-1)
    for ref in range(1, 10):
        a.arrive(ref, "llm")
    assert (a.machine.queue_length, a.machine.register.away) == (8, 0)
    record = a.decision(9)
    assert (record.outcome, record.own, record.may_keep) == ("kept", None, True)
    b = site(unlike("b", TYPES))
    b.hear("b", any=-2, llm=-1)
    assert [only(ev.Start | ev.Forward, b.arrive(ref, "llm")).ref for ref in (1, 2)] == [1, 2]


def test_neighbors_hear_at_once_of_a_server_that_fails():
    """By the failure that was one too many, and again when it is tried again: both are of what the
    pool does by itself."""
    a = site(unlike("b", {"any": "big"}), types={"any": "big small"})
    told = []
    for ref in range(1, 100):
        commands = a.arrive(ref, "any", ref / 10)
        ((_, server),) = started(commands)
        commands = a.end(ref, outcome=Outcome.DONE if server else Outcome.FAILED)
        told = [each.report.groups[0].servers for each in commands if isinstance(each, ev.Publish)]
        if a.machine.servers.servers[0].state == "degraded":
            break
    assert told[-1:] == [1]
    assert a.machine.servers.next_s < float("inf")
    commands = a.tell(ev.TimerFired(), a.machine.servers.next_s)
    while a.machine.servers.servers[0].state == "degraded":
        commands = a.tell(ev.TimerFired(), a.machine.servers.next_s)
    told = [each.report.groups[0].servers for each in commands if isinstance(each, ev.Publish)]
    assert told[-1:] == [2]


def test_what_waits_goes_elsewhere_at_a_drain_also_there():
    """It could not be kept."""
    a = site(unlike("b", TYPES), on_block="queue")
    a.hear("b", any=-2, llm=-1)
    for ref in (1, 2):
        a.arrive(ref, "llm")
    assert only(ev.Forward, a.tell(ev.Drain())).ref == 2


def test_a_seat_is_taken_without_a_choice():
    """One after another: the token is taken, and the job waits at its server."""
    a = site(unlike("b", TYPES), tokens=2, discipline="fcfs")
    a.hear("b", any=-2, llm=-1)
    a.arrive(1, "llm")
    assert isinstance(a.arrive(2, "llm")[0], ev.Accepted)
    assert (a.machine.ledger.home["queued"], a.decision(2).outcome) == (1, "kept")
    assert only(ev.Forward, a.arrive(3, "llm")).ref == 3  # no token any more
    assert started(a.end(1)) == [(2, 0)]


# --- servers that come and go ----------------------------------------------------------------


def test_a_server_that_is_down_takes_nothing():
    """What only it serves goes to a neighbor; the rest goes on."""
    a = site(unlike("b", TYPES))
    a.arrive(1, "llm")
    a.arrive(2, "llm")
    a.hear("b", any=-2, llm=-1)
    commands = a.tell(ev.ServersDown(0))
    assert only(ev.Forward, commands).ref == 2
    assert only(ev.Publish, commands).report.groups[-1].accepting is False
    assert not a.machine.servers.down
    assert started(a.arrive(3, "any")) == [(3, 1)]
    assert only(ev.Forward, a.arrive(4, "llm")).ref == 4
    a.tell(ev.ServersUp(0))
    a.end(1)
    assert started(a.arrive(5, "llm")) == [(5, 0)]


def test_what_waits_for_servers_that_are_out_leaves_once_a_neighbor_accepts():
    """Also if it refused before: nothing here will serve it."""
    a = site(unlike("b", TYPES))
    for ref in (1, 2, 3):
        a.arrive(ref, "llm")
    a.tell(ev.TokensSet({}, {"big": False}))
    assert a.machine.queue_length == 2
    a.hear("b", any=-2, llm=-1)
    assert (a.machine.queue_length, a.machine.register.away) == (0, 2)
    a.tell(ev.ForwardRefused(2))
    assert a.machine.queue_length == 1
    assert only(ev.Forward, a.hear("b", any=-2, llm=-1)).ref == 2


# --- servers that do not do what they are to ---------------------------------------------------


def refuse(a, ref, now_s=None, **told):
    return a.tell(ev.NotStarted(ref, "503", refused=True, service_s=0.04, **told), now_s)


def test_what_one_server_has_not_run_another_one_runs():
    """Before any neighbor, and nothing is held against the cluster. `/explain` says who refused."""
    a = site(unlike("b", TYPES), types={"any": "big small"}, tokens=3)
    a.hear("b", any=-2)
    a.arrive(1, "any")
    assert started(refuse(a, 1)) == [(1, 1)]
    story = a.machine.decider.log.tell("r1")
    (undone,) = [one for one in story if one["event"] == "not_started"]
    assert (undone["server"], undone["problem"]) == ("big", "503")
    granted = [one["granted"] for one in story if "granted" in one][-1]
    assert (granted["server"], granted["left_out"]) == ("small", ["big"])
    assert a.machine.health.failed_share(0.0) == 0.0


def test_what_all_servers_have_not_run_goes_to_a_neighbor_and_counts_once():
    a = site(unlike("b", TYPES), types={"any": "big small"}, tokens=3)
    a.arrive(1, "any")
    assert started(refuse(a, 1)) == [(1, 1)]
    assert a.machine.health.here.share.last == 0.0
    a.hear("b", any=-2)
    assert only(ev.Forward, refuse(a, 1)).ref == 1
    assert a.machine.health.here.share.last > 0.0


def test_a_cluster_that_refuses_everything_is_degraded():
    """However many servers it has."""
    a = site(unlike("b", TYPES), types={"any": "big small"}, tokens=3)
    for ref in range(1, 5):
        a.arrive(ref, "any", ref * 5.0)
        visit = a.machine.register.visits[ref]
        while not visit.refused_by_all:
            refuse(a, ref)
        is_running = visit.state == "running"
        a.tell(ev.CancelAsked(ref))
        if is_running:
            a.end(ref, outcome=Outcome.CANCELLED)
    assert a.machine.health.degraded


def test_a_rest_that_one_server_asks_for_is_its_own():
    """All others, and jobs that have nothing to do with it, go on; neighbors hear of it at once."""
    a = site(unlike("b", TYPES))
    a.arrive(1, "any")
    commands = refuse(a, 1, retry_after_s=5.0)
    assert started(commands) == [(1, 1)]
    assert only(ev.Publish, commands).report.groups
    assert (a.machine.servers.resting, a.machine.condition) == (False, "well")
    assert a.machine.servers.servers[0].state == "resting"
    a.end(1)
    assert not started(a.arrive(2, "llm")), "only big serves it: it waits"
    assert a.machine.ledger.home["queued"] == 1
    assert only(ev.Refuse, a.arrive(3, "llm", path=("b",))).reason is Refusal.NO_SERVERS
    assert started(a.arrive(4, "any")) == [(4, 1)]
    assert started(a.tell(ev.TimerFired(), 5.0)) == [(2, 0)]


def test_a_rest_that_all_servers_ask_for_is_of_all():
    a = site()
    a.arrive(1, "any")
    refuse(a, 1, retry_after_s=5.0)
    refuse(a, 1, retry_after_s=9.0)
    assert (a.machine.servers.resting, a.machine.condition) == (True, "resting")
    a.arrive(2, "any")
    assert a.machine.ledger.home["queued"] == 2
    commands = []
    while a.machine.servers.resting:
        commands = a.tell(ev.TimerFired(), a.machine.servers.next_s)
    assert a.now_s == 5.0
    assert [server for _, server in started(commands)] == [0]


@pytest.mark.parametrize("on_block", ["overflow", "queue"])
def test_what_waits_for_the_only_server_of_its_type_goes_to_neighbors_while_that_rests(on_block):
    """At once, or with the next report of one that accepts; so does what comes meanwhile. What a
    neighbor has sent goes back where none accepts. The other type has nothing to do with it."""
    a = site(
        unlike("b", TYPES), unlike("c", TYPES), types={"llm": "big", "any": "small"},
        on_block=on_block, policy="two-choice",
    )  # fmt: skip
    a.hear("b", any=-2, llm=-1, accepting=on_block == "queue")
    for ref in (1, 2):
        a.arrive(ref, "llm")
    a.arrive(3, "llm", path=("c",), pulled=True)
    a.arrive(4, "any")
    commands = refuse(a, 1, retry_after_s=5.0)
    away = {1, 2, 3}
    if on_block == "overflow":
        assert only(ev.Refuse, commands).ref == 3
        away = {1, 2}
        assert a.machine.ledger.home["queued"] == 2
        commands = a.hear("b", any=-2, llm=-1)
    assert {each.ref for each in commands if type(each) is ev.Forward} == away
    assert only(ev.Forward, a.arrive(5, "llm")).ref == 5
    assert started(a.end(4)) == []
    assert started(a.arrive(6, "any")) == [(6, 1)]
    assert a.machine.condition == "well"


def test_where_nobody_is_to_wait_nobody_waits_for_a_server_that_rests():
    """It goes to a neighbor; if none takes it, its client hears when to come again."""
    a = site(
        unlike("b", TYPES), types={"llm": "big", "any": "small"}, on_block="refuse",
        policy="two-choice",
    )  # fmt: skip
    a.arrive(1, "llm")
    refuse(a, 1, retry_after_s=5.0)
    told = only(ev.Refuse, a.arrive(2, "llm"))
    assert (told.reason, told.retry_after_s >= 5.0) == (Refusal.NO_SERVERS, True)
    a.hear("b", any=-2, llm=-1)
    assert only(ev.Forward, a.arrive(3, "llm")).ref == 3
    assert a.machine.blocked == {}


def test_a_rejection_is_final_and_taken_note_of():
    """The client's fault: no other server is tried, none is left alone."""
    a = site()
    for ref in range(1, 40):
        ((_, server),) = started(a.arrive(ref, "any", ref / 10))
        commands = a.end(ref, outcome=Outcome.DONE if server else Outcome.REJECTED)
        assert only(ev.Reply, commands).ref == ref
    pool = a.machine.servers
    assert [each.state for each in pool.servers] == ["up", "up"]
    (told,) = pool.told()["servers"][0]["not_done"]
    assert (told["type"], told["how"]) == ("any", "rejected")
    assert pool.told()["servers"][1]["not_done"] == []


# --- types that are not served ---------------------------------------------------------------


def test_a_type_that_nobody_near_serves_is_unknown():
    """The answer names those that are served, here or by a neighbor; not those further away."""
    c = unlike("c", {"far": "x"})
    a = site(unlike("b", {"render": "x"}), c, links=[("a", "b"), ("b", "c")])
    for type_ in ("far", "neither"):
        refuse = only(ev.Refuse, a.arrive(1, type_))
        assert (refuse.reason, set(refuse.types)) == (
            Refusal.UNKNOWN_TYPE,
            {"any", "llm", "render"},
        )
    assert not a.machine.register.visits


@pytest.mark.parametrize("plain_is", ["neighbor", "home"])
def test_a_plain_cluster_serves_every_type(plain_is):
    """With one in reach no type is unknown."""
    clusters = unlike("a", TYPES), plain("b")
    a = Site(linked(*(clusters if plain_is == "neighbor" else clusters[::-1])))
    if plain_is == "home":
        assert started(a.arrive(1, "neither"))
        return
    assert only(ev.Refuse, a.arrive(1, "neither")).reason is Refusal.NO_SERVERS
    a.hear("b", any=-2, llm=-2)
    assert only(ev.Forward, a.arrive(2, "neither")).ref == 2


def test_a_type_that_only_neighbors_serve_is_handed_on_or_refused():
    """It never starts here; a neighbor's is refused."""
    a = site(unlike("b", {"render": "x"}), unlike("c", TYPES))
    assert only(ev.Refuse, a.arrive(1, "render")).reason is Refusal.NO_SERVERS
    a.hear("b", render=-1)
    a.hear("c", any=-2, llm=-1)
    forward = only(ev.Forward, a.arrive(2, "render"))
    assert forward.neighbor == a.handles["b"]
    assert only(ev.Refuse, a.arrive(3, "render", path=("b",))).reason is Refusal.NO_SERVERS
    a.hear("b", render=-1, accepting=False)
    assert only(ev.Refuse, a.arrive(4, "render")).reason is Refusal.NO_SERVERS


def test_what_was_accepted_and_comes_back_waits_for_a_neighbor():
    """It is lost to nobody: the next report of one that accepts takes it along, or its deadline
    ends it."""
    a = site(unlike("b", {"render": "x"}))
    a.hear("b", render=-1)
    for ref in (1, 2):
        a.arrive(ref, "render")
        a.tell(ev.ForwardRefused(ref))
    assert a.machine.ledger.home["queued"] == 2
    assert [each.ref for each in a.hear("b", render=-1) if type(each) is ev.Forward] == [1, 2]
    a.tell(ev.ForwardRefused(1))
    reply = only(ev.Reply, a.tell(ev.TimerFired(), 60.0)[:2])
    assert (reply.answer.outcome, reply.ref) == (Outcome.EXPIRED, 1)
