"""What a cluster takes in bytes: by origin, wherever requests are, and what is kept beside them."""

from spillover.core.overflow import events as ev
from spillover.core.overflow.held import HeldBytes
from spillover.core.overflow.idempotency import ENTRY_BYTES, IdempotencyRecord, IdempotencyTable
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
    assert (held.beside_requests_bytes, held.total_bytes) == (200, 550)
    held.move(1000)
    assert (held.beside_requests_bytes, held.total_bytes) == (200, 1500)


def test_a_free_server_or_a_free_neighbor_does_not_help(story):
    """What runs or is away is held as well; it is refused without a draw, and that is on record."""
    node = story(held_limit_bytes=LIMIT, servers=5)
    node.hear(0, 1)
    node.arrive(1, size_bytes=600)
    assert refusal(node.arrive(2, size_bytes=600)) is Refusal.MEMORY_FULL
    (decision,) = node.machine.decider.log.of("r2")
    assert (decision.outcome, decision.objection) == ("refused", Refusal.MEMORY_FULL)


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


def test_a_large_request_that_did_not_fit_is_forgotten_as_others_end():
    """Smaller ones may be all that come."""
    held = HeldBytes(LIMIT)
    held.request_bytes = 300
    held.move(400, 400)
    held.move(0)
    assert not held.takes_foreign
    for _ in range(11):
        held.request_bytes += 10
        held.release(10)
    assert held.takes_foreign


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
