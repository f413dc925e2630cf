"""Who is told how a member has ended, once: whoever waits, else the log, else whoever leaves its
`with`; and what it lets in at entry. Without Redis."""

import asyncio
from contextlib import suppress

import pytest

from spillover.live.leases.completion import Completion, MemberFailed
from spillover.model.errors import InputError, RunError
from support.loop import turn

LIMIT_S = 20.0


def runs(story):
    """With a completion, under a limit."""

    async def limited():
        async with asyncio.timeout(LIMIT_S):
            await story(Completion("n1"))

    asyncio.run(limited())


def logged(caplog):
    return [record.getMessage() for record in caplog.records]


def test_entry_is_decided_once():
    async def story(one):
        one.let_in()
        one.let_in()
        assert not one.refuse(InputError("--redis", "", "another group"))
        await one.entered()
        other = Completion("n2")
        assert other.refuse(InputError("--redis", "", "another group"))
        assert not other.refuse(InputError("--redis", "", "later"))
        other.let_in()
        with pytest.raises(InputError, match="another group"):
            await other.entered()

    runs(story)


def test_entry_is_waited_for_and_ends_with_the_member():
    async def story(one):
        entering = asyncio.create_task(one.entered())
        await turn()
        assert not entering.done()
        one.left("it could not join")
        with pytest.raises(RunError, match="n1: it could not join"):
            await entering
        other = Completion("n2")
        other.left()
        await other.entered()

    runs(story)


def test_giving_up_is_logged_unless_somebody_waits(caplog):
    """Somebody who has ceased to wait is nobody."""

    async def story(one):
        waiting = asyncio.create_task(one.wait())
        await turn()
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert not one.future.done(), "that one has ceased to wait ends nothing"
        one.left("its id is taken")
        one.left("and for another reason")
        assert logged(caplog) == ['member has given up member=n1 reason="its id is taken"']
        with pytest.raises(RunError, match=r"^n1: its id is taken$"):
            one.raise_unless_told()
        one.raise_unless_told()
        with pytest.raises(RunError, match="its id is taken"):
            await one.wait()

    runs(story)


def test_an_error_of_its_own_is_always_logged_with_where_it_was(caplog):
    async def story(one):
        waiting = asyncio.create_task(one.wait())
        await turn()
        first, second = LookupError("a bug"), ValueError("another")
        one.failed(first)
        one.failed(second)
        with pytest.raises(MemberFailed) as told:
            await waiting
        assert str(told.value) == "n1: it has failed by an error of its own: LookupError: a bug"
        assert [record.exc_info[1] for record in caplog.records] == [first, second]
        assert set(logged(caplog)) == {"member has failed, and serves nothing member=n1"}
        with pytest.raises(MemberFailed, match="a bug"):
            await one.wait()

    runs(story)
