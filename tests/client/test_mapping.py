"""Many payloads at once, without nodes: what is run here ends as a test says, in its order."""

import asyncio
from concurrent.futures import Future

import pytest

from spillover.client.mapping import AHEAD, Window, map_async, map_here
from spillover.client.wire import Answer
from spillover.model.errors import Cancelled
from support.loop import turn, until


def answer(payload):
    return Answer(id="x", result=payload, cluster="a", path=("a",), hops=0, timing_ms={})


class Runs:
    """What is under way, by payload, and all that has begun and was cancelled."""

    def __init__(self):
        self.under_way = {}
        self.begun = []
        self.cancelled = []

    async def run(self, payload):
        self.begun.append(payload)
        self.under_way[payload] = asyncio.get_running_loop().create_future()
        try:
            return await self.under_way[payload]
        except asyncio.CancelledError:
            self.cancelled.append(payload)
            await turn(0)  # who cancels it waits for its end
            raise
        finally:
            del self.under_way[payload]

    async def end(self, *payloads, error=None):
        for payload in payloads:
            await until(lambda payload=payload: payload in self.under_way)
            if error is None:
                self.under_way[payload].set_result(answer(payload))
            else:
                self.under_way[payload].set_exception(error)


class Map:
    """A map under way in a task: what it has handed out, and what has come out of it."""

    def __init__(self, payloads, at_most=3, *, ordered=True, total=None, progress=None):
        self.runs = Runs()
        self.outcomes = []
        self.window = Window(at_most, total, ordered=ordered)
        self.mapping = map_async(payloads, self.runs.run, self.window, progress)
        self.task = asyncio.create_task(self._take())

    async def _take(self):
        async for outcome in self.mapping:
            self.outcomes.append(outcome.result if isinstance(outcome, Answer) else str(outcome))

    async def begun(self, *payloads):
        """Just these have, and no others do when the loop has nothing left to do."""
        await until(lambda: len(self.runs.begun) >= len(payloads))
        for _ in range(5):
            await turn(0)
        assert self.runs.begun == list(payloads)


async def test_as_many_run_as_may_and_the_next_begins_with_the_first_end():
    many = Map(range(6), at_most=2, ordered=False)
    await many.begun(0, 1)
    await many.runs.end(1)
    await many.begun(0, 1, 2)
    await many.runs.end(2, 0, 3, 4, 5)
    await many.task
    assert many.outcomes == [1, 2, 0, 3, 4, 5]


async def test_in_order_so_many_wait_for_an_earlier_one_and_no_more():
    many = Map(range(1000), at_most=2)
    for payload in range(1, 2 * (AHEAD + 1)):
        await many.runs.end(payload)
    await many.begun(*range(2 * (AHEAD + 1)))
    assert many.outcomes == []
    await many.runs.end(0)
    await until(lambda: len(many.outcomes) == 2 * (AHEAD + 1))
    await many.begun(*range(2 * (AHEAD + 1) + 2))
    many.task.cancel()
    await asyncio.wait([many.task])


async def test_an_error_is_handed_out_in_its_place():
    many = Map(range(3))
    await many.runs.end(2)
    await many.runs.end(1, error=Cancelled("somebody did"))
    await many.runs.end(0)
    await many.task
    assert many.outcomes == [0, "somebody did", 2]
    progress = many.window.progress
    assert (progress.started, progress.done, progress.failed) == (3, 2, 1)


@pytest.mark.parametrize("error", [KeyError("a bug"), asyncio.CancelledError()])
async def test_what_is_no_error_of_ours_ends_the_whole(error):
    """All that runs is cancelled, and has ended by then."""
    many = Map(range(9))
    await many.begun(0, 1, 2)
    await many.runs.end(1, error=error)
    with pytest.raises(type(error)):
        await many.task
    assert set(many.runs.cancelled) - {1} == {0, 2}
    assert many.runs.under_way == {}
    assert many.outcomes == []


@pytest.mark.parametrize("awaited", [False, True])
async def test_what_payloads_raise_ends_the_whole(awaited):
    def plain():
        yield 0
        raise KeyError("no more")

    async def coming():
        yield 0
        raise KeyError("no more")

    many = Map(coming() if awaited else plain())
    with pytest.raises(KeyError):
        await many.task
    assert many.runs.under_way == {}
    assert many.runs.begun == many.runs.cancelled


async def test_payloads_that_are_awaited_are_asked_for_one_at_a_time_and_while_there_is_room():
    """They are let go of when nobody takes answers any more."""
    asked, let_go = [], []
    gates = [asyncio.Event() for _ in range(4)]

    async def coming():
        try:
            for number, gate in enumerate(gates):
                asked.append(number)
                await gate.wait()
                yield number
        except asyncio.CancelledError:
            let_go.append(len(asked))
            raise

    many = Map(coming(), at_most=2)
    await until(lambda: asked)
    for number in (0, 1):
        gates[number].set()
        await until(lambda number=number: number in many.runs.under_way)
    await many.begun(0, 1)
    assert len(asked) <= 3
    await many.runs.end(0)
    await until(lambda: asked == [0, 1, 2] and many.outcomes == [0])
    assert let_go == []
    many.task.cancel()
    await asyncio.wait([many.task])
    assert many.runs.cancelled == [1]
    await until(lambda: let_go == [3])


# --- in a thread that does not await -------------------------------------------------------------


class Begun:
    """Futures of what was begun, by payload. `ends` says what ends as soon as one has begun: which
    others, or it itself."""

    def __init__(self, **ends):
        self.futures = {}
        self._ends = ends

    def begin(self, payload):
        future = self.futures[payload] = Future()
        for one in self._ends.get(payload, ""):
            self.end(one)
        return future

    def end(self, payload, error=None):
        if payload.isupper():
            error, payload = Cancelled(f"not {payload}"), payload.lower()
        if error is None:
            self.futures[payload].set_result(answer(payload))
        else:
            self.futures[payload].set_exception(error)

    @property
    def open(self):
        return [payload for payload, one in self.futures.items() if not one.done()]


def here(payloads, begun, at_most=3, *, ordered=True, total=None, progress=None):
    window = Window(at_most, total, ordered=ordered)
    return map_here(payloads, begun.begin, window, progress)


def result_of(outcome):
    return outcome.result if isinstance(outcome, Answer) else str(outcome)


def test_here_answers_come_in_order_and_errors_in_their_place():
    """A capital fails here."""
    told = []
    outcomes = here("abc", Begun(c="cBa"), total=3, progress=lambda one: told.append((*one,)))
    assert [result_of(one) for one in outcomes] == ["a", "not B", "c"]
    assert told == [(3, 2, 1, 3)] * 3


@pytest.mark.parametrize("error", [KeyError("a bug"), None])
def test_here_what_is_no_error_of_ours_ends_the_whole(error):
    """So does what was cancelled behind the back of the map."""
    begun = Begun()
    begin = begun.begin

    def begin_and_break(payload):
        future = begin(payload)
        if payload == "c":
            begun.futures["b"].cancel() if error is None else begun.end("b", error)
        return future

    begun.begin = begin_and_break
    outcomes = here("abcd", begun)
    with pytest.raises(asyncio.CancelledError if error is None else KeyError):
        list(outcomes)
    assert begun.open == []
    assert begun.futures["c"].cancelled()
    assert begun.futures["b"].cancelled() is (error is None)
    assert "d" not in begun.futures


def test_here_what_is_under_way_is_cancelled_where_the_map_is_left():
    begun = Begun(c="a")
    outcomes = here("abcd", begun)
    assert result_of(next(outcomes)) == "a"
    assert begun.open == ["b", "c"]
    outcomes.close()
    assert [begun.futures[one].cancelled() for one in "bc"] == [True, True]
