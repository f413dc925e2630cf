"""What a cluster takes in bytes: by origin, wherever requests are, and what is kept beside them."""

from __future__ import annotations

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.held import HeldBytes
from spillover.core.overflow.idempotency import ENTRY_BYTES, IdempotencyRecord, IdempotencyTable
from spillover.model.load import LoadReport
from spillover.model.request import Answer, Outcome, Refusal, Request

LIMIT = 800
"""700 for clients' requests, 630 of it also for those of neighbors, 100 for answers alone."""


def refusal(commands):
    """The reason of the one refusal, None if there is none."""
    (reason,) = [c.reason for c in commands if isinstance(c, ev.Refuse)] or [None]
    return reason


def test_an_eighth_is_for_answers_and_a_tenth_of_the_rest_for_clients():
    """To the byte."""
    held = HeldBytes(LIMIT)
    assert (held.refusal(700, True), held.refusal(701, True)) == (None, Refusal.TOO_LARGE)
    assert (held.refusal(630, False), held.refusal(631, False)) == (None, Refusal.TOO_LARGE)
    held.request_bytes, held.moving_bytes = 500, 50
    assert (held.room_bytes, held.total_bytes) == (150, 550)
    held.move(1000)
    assert (held.room_bytes, held.total_bytes) == (-800, 1500)


def test_requests_count_from_acceptance_to_answer_wherever_they_are(story):
    """Running, waiting and away alike, and whichever way they end."""
    node = story(held_limit_bytes=LIMIT, policy="paper")
    node.hear(0, 1)
    node.arrive(1, size_bytes=200)
    node.arrive(2, size_bytes=200)
    node.arrive(3, size_bytes=200, away=True)
    assert node.machine.register.away == 1
    assert node.machine.held.request_bytes == 600
    assert refusal(node.arrive(4, size_bytes=101)) is Refusal.MEMORY_FULL
    assert refusal(node.arrive(5, size_bytes=100)) is None
    for held_bytes, event in (
        (500, ev.ForwardAnswered(3, Answer(Outcome.DONE, ("a", "c")), 0.0, 0.0)),
        (300, ev.Cancelled(2)),
        (100, ev.ServiceEnded(1, Outcome.DONE, 0.25)),
        (0, ev.ServiceEnded(5, Outcome.FAILED, 0.25)),
    ):
        node.tell(event)
        assert node.machine.held.request_bytes == held_bytes


def test_a_free_server_or_a_free_neighbor_does_not_help(story):
    """What runs or is away is held as well; it is refused without a draw, and that is on record."""
    node = story(held_limit_bytes=LIMIT, servers=5)
    node.hear(0, 1)
    node.arrive(1, size_bytes=600)
    assert refusal(node.arrive(2, size_bytes=600)) is Refusal.MEMORY_FULL
    (decision,) = node.machine.decider.log.of("r2")
    assert (decision.outcome, decision.objection) == ("refused", Refusal.MEMORY_FULL)


@pytest.mark.parametrize(("path", "most"), [((), 700), (("b",), 630)])
def test_what_could_never_fit_is_told_so(story, path, most):
    """To come again later would be of no use."""
    node = story(held_limit_bytes=LIMIT)
    assert refusal(node.arrive(1, path=path, size_bytes=most + 1)) is Refusal.TOO_LARGE
    assert refusal(node.arrive(2, path=path, size_bytes=most)) is None


def test_neighbors_are_refused_first_and_told_of_it(story):
    """P is 0 where not even the size that was refused last would fit."""
    node = story(held_limit_bytes=LIMIT, servers=5)
    node.arrive(1, size_bytes=600)
    assert node.machine.accepting, "as far as is known: no larger one has come"
    assert refusal(node.arrive(2, path=("b",), size_bytes=100)) is Refusal.MEMORY_FULL
    (publish,) = node.tell(ev.ReportAsked())
    assert (publish.report.accepting, publish.report.accept_probability) == (False, 0.0)
    assert refusal(node.arrive(3, size_bytes=100)) is None
    node.end(3)
    node.end(1)
    assert node.machine.accepting
    assert refusal(node.arrive(4, path=("b",), size_bytes=100)) is None


def test_what_a_neighbor_refuses_for_its_size_is_decided_again(story):
    """It comes back as any refused forward, and stays: it counts here already."""
    node = story(held_limit_bytes=LIMIT, neighbors=("b",))
    node.hear(0)
    node.fill(1, 2)
    assert node.arrive(3, size_bytes=700, away=True)[1] == node.forward(3, 0)
    assert node.tell(ev.ForwardRefused(3)) == []
    assert (node.machine.queue_length, node.machine.held.request_bytes) == (2, 700)


def test_what_moves_counts_like_requests(story):
    """Answers that arrive, or are not read, keep new requests out, and neighbors' first."""
    node = story(held_limit_bytes=LIMIT)
    assert node.tell(ev.BytesMoving(650)) == []
    assert not node.machine.accepting
    assert refusal(node.arrive(1, size_bytes=51)) is Refusal.MEMORY_FULL
    assert refusal(node.arrive(2, size_bytes=50)) is None
    node.tell(ev.BytesMoving(0))
    assert node.machine.accepting


def test_without_a_limit_sizes_change_nothing(story):
    """As in simulations, whose requests have none."""
    node = story()
    for ref in range(50):
        assert refusal(node.arrive(ref, path=("b",), size_bytes=2**40)) is None
    report = LoadReport(1, 1, 1.0, 1.0, 0, 1, accepting=True, hears=("a",))
    node.tell(ev.ReportReceived(0, report))
    assert node.machine.accepting


def kept(names, *sizes, keyed=True):
    """Entries that have ended with answers of these sizes."""
    for size in sizes:
        request = Request(f"r{len(names)}", keyed, None)
        entry = IdempotencyRecord(request, len(names), b"k" if keyed else None, asynchronous=False)
        names.open(entry)
        names.settle(entry, Answer(Outcome.DONE, ("a",), b"x" * size), 0.0)


def test_kept_answers_give_way_the_oldest_first():
    """Those that their clients have before those that may be asked for again; and what comes later
    has no more room, until there is more again."""
    names = IdempotencyTable(10.0, 100, 10**6)
    kept(names, 1000, 1000, 1000)
    kept(names, 1000, 1000, keyed=False)
    each = 1000 + ENTRY_BYTES
    assert names.kept_bytes == 5 * each
    names.make_room(4 * each)
    assert [n for n in range(5) if names.find(f"r{n}", 1.0)] == [0, 1, 2, 4]
    names.make_room(2 * each - 1)
    assert [n for n in range(5) if names.find(f"r{n}", 1.0)] == [2]
    kept(names, 1000)
    names.check()
    assert names.kept_bytes == each
    names.make_room(0)
    assert (names.kept_bytes, len(names)) == (0, 0)
    names.make_room(10**6)
    kept(names, 1000)
    assert names.kept_bytes == each
    names.check()
