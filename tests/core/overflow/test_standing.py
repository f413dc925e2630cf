"""What comes of work at one place: whose fault failures are, and when they are over."""

from hypothesis import given
from hypothesis import strategies as st

from spillover.core.overflow.standing import AT_FAULT_MAX, Standing

CHAT, EMBEDDINGS = "POST /v1/chat", "POST /v1/embeddings"


def told(standing, *ends, now_s=0.0):
    """Work of these kinds has ended, well or (False) not; the changes that came of it."""
    return [standing.ended(now_s, kind, failed=not well) for kind, well in ends]


def degraded(kind):
    standing = Standing()
    while not standing.degraded:
        told(standing, (kind, False))
    return standing


def test_one_kind_that_fails_among_others_is_at_fault():
    """Twelve embeddings at a server that only chats."""
    standing = Standing()
    for _ in range(12):
        told(standing, (EMBEDDINGS, False), (CHAT, True), (CHAT, True))
    assert not standing.degraded
    assert not any(told(standing, *[(EMBEDDINGS, False)] * 50)), "it counts no more"
    told(standing, (EMBEDDINGS, True))
    told(standing, *[(EMBEDDINGS, False)] * 4)
    assert standing.degraded, "it did well, and fails with nothing else about"


def test_that_is_found_out_afterwards_too():
    """They came at once; then what else is there does well."""
    standing = degraded(EMBEDDINGS)
    changes = told(standing, *[(CHAT, True)] * 3)
    assert changes.count(True) == 1
    assert not standing.degraded


def test_a_place_that_fails_all_kinds_is_at_fault_itself():
    standing = degraded(EMBEDDINGS)
    assert not any(told(standing, (CHAT, False), *[(CHAT, True)] * 3))
    assert standing.degraded
    standing = Standing()
    for _ in range(12):
        told(standing, (EMBEDDINGS, False), (CHAT, True), (CHAT, True))
    told(standing, *[(CHAT, False)] * 4)
    assert standing.degraded, "one was at fault before"


def test_what_is_remembered_of_kinds_is_bounded():
    standing = Standing()
    for number in range(3 * AT_FAULT_MAX):
        told(standing, *[(number, False)] * 4, *[(CHAT, True)] * 40)
    assert len(standing._at_fault) == AT_FAULT_MAX
    assert not standing.degraded


@given(st.lists(st.tuples(st.sampled_from([CHAT, EMBEDDINGS, None]), st.booleans()), max_size=200))
def test_changes_are_told_and_a_calm_place_has_nothing_against_it(ends):
    standing = Standing()
    for kind, well in ends:
        was = standing.degraded
        (changed,) = told(standing, (kind, well))
        assert changed == (was != standing.degraded)
        assert not changed or standing.degraded is not well
        assert not (standing.is_calm and standing.degraded)
        assert standing.run == 0 or standing.degraded
