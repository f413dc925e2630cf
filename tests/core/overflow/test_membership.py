"""Stories of neighbors that come and go, and the handles by which they are named."""

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.neighbors import NEIGHBORS_MAX
from spillover.model.load import LoadReport
from spillover.model.request import Outcome
from support.loads import neighbors_of

D = 2
"""The next handle after those of b and c."""


def report(epoch=1, sequence=1, hears=("a",)):
    return LoadReport(epoch, sequence, 1.0, 1.0, 0, 1, True, hears)


def reported(commands):
    (publish,) = [command for command in commands if isinstance(command, ev.Publish)]
    return publish.report


def test_one_that_joins_is_unknown_until_it_reports_and_then_gets_work(story):
    """Its handle is told; its delay is its link's."""
    node = story()
    node.fill(1, 2)
    assert node.tell(ev.Join("d", 0.25)) == [ev.Connect(D, "d")]
    assert node.arrive(3, away=True) == [ev.Accepted(3)], "it is unknown"
    assert reported(node.hear(D)).hears == ("d",)
    assert node.arrive(4, away=True) == [ev.Accepted(4), node.forward(4, D)]
    known = node.machine.neighbors.knowledge()
    assert (known.ids, known.handles) == (("b", "c", "d"), (0, 1, D))
    assert known.loads.delays_s == (0.0, 0.0, 0.25)


def test_there_are_only_so_many_neighbors():
    """One more is told so; where one leaves there is room again, under a handle that is new."""
    names = [f"n{number}" for number in range(NEIGHBORS_MAX)]
    table = neighbors_of(names)
    assert "as many as there can be" in table.objection_to("late")
    table.leave(7)
    assert table.objection_to("late") is None
    assert table.join("late", 0.0) == NEIGHBORS_MAX
    assert table.objection_to("later") is not None
    table.check()


def test_a_cluster_that_comes_back_is_another_neighbor(story):
    """Under a new handle. What its former life said, refused or is sent under its old one does not
    count: it is believed anew, of any epoch, and may be asked again."""
    node = story()
    node.hear(0, 1, epoch=5)
    node.fill(1, 2)
    node.arrive(3, away=True)
    node.tell(ev.ForwardRefused(3))
    node.part_from(1)
    assert node.tell(ev.Join("c", 0.0)) == [ev.Connect(D, "c")]
    node.tell(ev.ReportReceived(1, report(epoch=6)))
    assert node.machine.neighbors.known == [True, False]
    assert node.part_from(0) == [ev.Disconnect(0)]
    node.hear(D, epoch=4)
    assert node.machine.neighbors.known == [True]
    assert node.tell(ev.Drain())[1:] == [node.forward(2, D), node.forward(3, D)]


@pytest.mark.parametrize("keyed", [True, False])
def test_what_is_away_to_one_that_leaves_comes_back_as_its_link_says(story, keyed):
    """Nothing happens to it before. Refused, it is decided again; lost, only if it has a key. The
    names in its history are right though the one is gone and the other has moved up."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True, keyed=keyed)
    node.arrive(4, away=True, keyed=keyed)
    assert node.part_from(1) == [ev.Disconnect(1)]
    assert node.ledger["home.away"] == 2
    node.draws.coming.append(0.99)
    assert node.tell(ev.ForwardRefused(3)) == [node.forward(3, 0)]
    node.draws.coming.append(0.99)
    (command,) = node.tell(ev.ForwardLost(4))
    if keyed:
        assert command == node.forward(4, 0)
    else:
        assert command.answer.outcome is Outcome.UNKNOWN
        assert command.answer.problem == "cluster c was lost before it answered"
    lines = node.machine.decider.log.tell("r3") + node.machine.decider.log.tell("r4")
    told = [(line["event"], line.get("neighbor")) for line in lines]
    last = ("decided", "b") if keyed else ("ended", None)
    assert told == [
        ("decided", "c"),
        ("refused_by", "c"),
        ("decided", "b"),
        ("decided", "c"),
        ("lost_at", "c"),
        last,
    ]
    assert [row["id"] for row in lines[0]["neighbors"]] == ["b", "c"]
    assert [row["id"] for row in lines[2]["neighbors"]] == ["b"]


def test_what_one_that_has_left_had_sent_is_answered(story):
    """Or given back, where work fails: to the handle under which it came, whoever has joined
    since."""
    node = story()
    node.arrive(1, path=("c",), origin=1)
    node.arrive(2, path=("c",), origin=1)
    node.part_from(1)
    node.tell(ev.Join("e", 0.0))
    reply, start = node.end(1, 1.0)
    assert (reply.ref, reply.origin) == (1, 1)
    assert start == node.start(2, 1.0)
    refused = ev.NotStarted(2, "busy", refused=True, retry_after_s=5.0)
    (back,) = [command for command in node.tell(refused) if isinstance(command, ev.Refuse)]
    assert (back.ref, back.origin) == (2, 1)
    assert node.machine.decider.log.tell("r2")[-1]["neighbor"] == "c"
    assert node.ledger == {"foreign.received": 2, "foreign.answered": 2}
