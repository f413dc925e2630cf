"""Groups of types: each a federation of its own, on the same links."""

from spillover.core.overflow import events as ev
from spillover.core.overflow.decisions import describe
from spillover.model.load import LoadNow, LoadReport
from spillover.model.request import Answer, Outcome
from support.typed_sites import Site, linked, only, plain, unlike

TWO = {"llm": "big", "render": "small"}
"""Two groups that share nothing."""


def site(*others, **fields):
    return Site(linked(unlike("a", TWO), *others, **fields))


def told(report):
    return {group.id: group for group in report.groups}


def test_a_report_tells_of_each_group_that_is_served():
    """P, N and the load of its servers alone, and R from what neighbors say of it."""
    a = site(unlike("b", TWO), unlike("c", {"else": "x"}))
    for ref in (1, 2, 3):
        a.arrive(ref, "llm")
    report = only(ev.Publish, a.tell(ev.ReportAsked())).report
    assert set(told(report)) == {"llm", "render"}
    llm, render = told(report)["llm"], told(report)["render"]
    assert (llm.accept_probability, llm.ahead, llm.servers, llm.accepting) == (1 / 3, 2, 1, True)
    assert (render.accept_probability, render.ahead) == (1.0, -1)
    assert llm.load > 0.0 == render.load
    a.hear("b", llm=0)
    report = only(ev.Publish, a.tell(ev.ReportAsked())).report
    assert told(report)["llm"].neighborhood_accept_probability == 1.0


def test_two_groups_do_not_see_each_others_load():
    """A neighbor that is full of one kind of job is idle for the other."""
    a = site(unlike("b", TWO))
    for ref, type_ in enumerate(["llm", "render"] * 2, 1):
        a.arrive(ref, type_)
    a.hear("b", llm=50, render=-1)
    assert not [each for each in a.arrive(5, "llm") if isinstance(each, ev.Forward)]
    forward = only(ev.Forward, a.arrive(6, "render"))
    assert (forward.ref, forward.load.ahead) == (6, 1)
    seen = {ref: a.decision(ref).knowledge.loads.ahead for ref in (5, 6)}
    assert seen == {5: (50,), 6: (-1,)}


def test_what_a_message_tells_is_of_the_requests_group():
    """With a forward, a refusal or an answer; it changes nothing of the other group."""
    a = site(unlike("b", TWO))
    a.hear("b", llm=1, render=2)
    a.arrive(1, "llm", path=("b",), load=LoadNow(1, 7, 9, 0.5, accepting=True))
    llm, render = (a.machine.groups.by_id[one].neighbors.by_handle[0] for one in TWO)
    assert (llm.ahead, render.ahead) == (9, 2)
    a.arrive(2, "render")
    a.sequence = 20
    a.hear("b", llm=0, render=-2)
    forward = only(ev.Forward, a.arrive(3, "render"))
    a.tell(ev.ForwardRefused(forward.ref, LoadNow(1, 40, 11, 0.5, accepting=False)))
    assert (llm.ahead, render.ahead) == (0, 11)
    assert (llm.accepting, render.accepting) == (True, False)
    reply = only(ev.Reply, a.end(1))
    assert reply.answer.load.ahead == -1  # no llm is left


def test_a_job_goes_only_to_who_serves_its_type():
    """The explanation says who does not, and of which group the rest is."""
    a = site(unlike("b", {"render": "x"}), unlike("c", TWO))
    a.hear("b", render=-5)
    a.hear("c", llm=-1, render=-1)
    a.arrive(1, "llm")
    assert only(ev.Forward, a.arrive(2, "llm")).neighbor == a.handles["c"]
    record = describe(a.decision(2))
    assert (record["group"], record["servers"]) == ("llm", 1)
    rows = {row["id"]: (row["serves"], row["eligible"]) for row in record["neighbors"]}
    assert rows == {"b": (False, False), "c": (True, True)}


def test_an_explanation_says_which_token_and_what_else_was_there():
    """With the decision where it starts at once, and where it starts later."""
    a = site()
    a.arrive(1, "llm")
    a.arrive(2, "llm")
    a.end(1)
    at_once, later = (a.machine.decider.log.tell(f"r{ref}") for ref in (1, 2))
    assert (at_once[0]["outcome"], at_once[0]["granted"]["server"]) == ("started", "big")
    assert [(each["event"], each.get("granted", {}).get("token")) for each in later] == [
        ("decided", None),
        ("started", "big-1"),
    ]


# --- who is there ----------------------------------------------------------------------------


def test_who_lives_is_the_same_for_all_groups():
    """Silence, a link that is down, a neighbor that leaves."""
    a = site(unlike("b", TWO), unlike("c", TWO))
    tables = [group.neighbors for group in a.machine.groups.all]
    a.hear("b", 0.0, llm=-1, render=-1)
    a.hear("c", 0.0, llm=-1, render=-1)
    assert [table.known for table in tables] == [[True, True]] * 3
    a.tell(ev.ReportReceived(a.handles["b"], None), 0.9)
    a.tell(ev.TimerFired(), 1.1)
    assert [table.known for table in tables] == [[True, False]] * 3
    a.tell(ev.LinkDown(a.handles["b"]))
    assert [table.known for table in tables] == [[False, False]] * 3
    a.tell(ev.Part(a.handles["b"]))
    a.tell(ev.TimerFired())
    assert [table.ids for table in tables] == [("c",)] * 3


def test_who_is_parted_from_is_so_for_all_groups():
    """And stays for all of them, where it is taken back; another delay counts for all, too."""
    a = site(unlike("b", TWO))
    tables = [group.neighbors for group in a.machine.groups.all]
    b = a.handles["b"]
    a.hear("b", llm=-1, render=-1)
    served = [table.accepting for table in tables]
    assert served[:2] == [[True], [True]]
    a.tell(ev.Part(b))
    assert [table.accepting for table in tables] == [[False]] * 3
    a.tell(ev.Join("b", 0.25))
    assert [table.accepting for table in tables] == served
    assert [table.knowledge().loads.delays_s for table in tables] == [(0.25,)] * 3


def test_a_ramp_is_one_for_all_groups():
    """What is away of one leaves less for the others."""
    a = site(unlike("b", TWO), links=[])
    a.tell(ev.Join("b", 0.0, ramp=True))
    a.handles = a.machine.neighbors.index
    a.hear("b", llm=-1, render=-1)
    for ref, type_ in enumerate(["llm", "render"], 1):
        a.arrive(ref, type_)
    assert only(ev.Forward, a.arrive(3, "llm")).ref == 3
    assert not [one for one in a.arrive(4, "render") if isinstance(one, ev.Forward)]
    a.tell(ev.ForwardAnswered(3, Answer(Outcome.DONE, ("a", "b")), 0.0, 0.0))
    assert only(ev.Forward, a.arrive(5, "render")).ref == 5


def test_who_joins_may_serve_anything():
    """What it serves, its reports say; until then no type is unknown."""
    a = site(unlike("b", {"render": "x"}))
    assert only(ev.Refuse, a.arrive(1, "new")).reason == "unknown_type"
    a.tell(ev.Join("d", 0.0))
    assert only(ev.Refuse, a.arrive(2, "new")).reason == "no_servers"
    a.handles = a.machine.neighbors.index
    a.hear("d", llm=-1)
    a.arrive(3, "llm")
    assert only(ev.Forward, a.arrive(4, "llm")).neighbor == a.handles["d"]


def test_a_plain_neighbor_that_tells_of_no_group_serves_them_all():
    """Its report as a whole says of each what it says of itself."""
    a = site(plain("b", 2))
    a.hear("b")
    for ref in (1, 2):
        a.arrive(ref, "llm")
    assert only(ev.Forward, a.arrive(3, "llm")).ref == 3
    assert a.decision(3).knowledge.loads.ahead == (-2,)


# --- work that is asked for ------------------------------------------------------------------


def test_idle_servers_ask_for_what_they_fit():
    """The question names the group; no more are asked than servers are idle."""
    a = site(unlike("b", TWO), unlike("c", TWO))
    a.arrive(1, "render")
    a.hear("b", llm=20, render=20)
    a.hear("c", llm=20, render=20)
    asks = [each for each in a.tell(ev.TimerFired(), 0.06) if isinstance(each, ev.AskForWork)]
    assert [ask.group for ask in asks] == ["llm"]
    assert a.machine.groups.asks_under_way == 1
    a.tell(ev.NoWorkThere(asks[0].neighbor, LoadNow(1, 90, -1, 0.0, accepting=True), "llm"))
    assert a.machine.pulling.ends["nothing"] == 1
    asks = [each for each in a.end(1, 0.07) if isinstance(each, ev.AskForWork)]
    assert sorted(ask.group for ask in asks) == ["render"]


def test_who_asks_gets_the_oldest_of_the_group():
    """Others that wait before it stay."""
    a = site(unlike("b", TWO))
    a.hear("b", llm=0, render=0)
    for ref, type_ in enumerate(["llm", "llm", "render", "render", "llm", "render"], 1):
        a.arrive(ref, type_)
    waiting = [visit.ref for visit in a.machine.servers if visit.group.id == "render"]
    load = LoadNow(1, 50, -1, 0.0, accepting=True)
    forward = only(ev.Forward, a.tell(ev.WorkAsked(0, load, "render")))
    assert (forward.ref, forward.pulled) == (waiting[0], True)
    assert a.tell(ev.WorkAsked(0, load, "neither")) == []


def test_in_place_of_what_comes_only_what_is_served_there_goes():
    """A plain cluster serves all, its neighbor does not: the oldest of the same group goes."""
    a = Site(linked(plain("a"), unlike("b", {"llm": "big"})))
    for ref, type_ in enumerate(["render", "render", "llm"], 1):
        a.arrive(ref, type_)
    a.hear("b", llm=-1)
    assert only(ev.Forward, a.arrive(4, "llm")).ref == 3


# --- federations -----------------------------------------------------------------------------


def test_a_report_that_is_old_or_of_another_life_is_that_for_all_groups():
    """Its sequence and its epoch are the report's, not the group's."""
    a = site(unlike("b", TWO))
    a.sequence = 5
    a.hear("b", llm=3, render=3)
    stale = LoadReport(1, 6, 1.0, 1.0, 0, 2, True, ("a",), ahead=0)
    a.tell(ev.ReportReceived(0, stale))
    rows = [a.machine.groups.by_id[one].neighbors.by_handle[0] for one in TWO]
    assert [row.ahead for row in rows] == [3, 3]
