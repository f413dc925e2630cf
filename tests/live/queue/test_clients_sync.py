"""The synchronous twins of `produce` and `consume`: producers run in a thread of their own."""

import atexit
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from spillover.client import InputError, Unreachable, consume, produce
from spillover.core.queue import events as ev
from spillover.live.engine.loop_thread import LoopThread
from support.queue_producers import producers
from support.waiting import until


class Bed:
    """Two producers."""

    def __init__(self, **changed):
        self.thread = LoopThread("producers")
        self._running = producers(2, **changed)
        self.them = self.thread.run(self._running.__aenter__())
        self.urls = [one.url for one in self.them]

    def nack(self, grant):
        """As if its grant had ended."""
        self.thread.run(self._nack(grant))

    async def _nack(self, grant):
        for one in self.them:
            one.shell.feed(ev.Nacked(0, grant))

    def close(self):
        self.thread.run(self._running.__aexit__(None, None, None))
        self.thread.close()


@pytest.fixture
def bed(request):
    bed = Bed(**getattr(request, "param", {}))
    yield bed
    bed.close()


@pytest.mark.parametrize("shares_iterator", [False, True])
def test_threads_share_one_consumer(bed, shares_iterator):
    count = 6
    objects = consume(bed.urls, at_once=3)
    loops = [iter(objects)] * 3 if shares_iterator else [objects] * 3
    seen = []

    def work(k):
        for obj in loops[k]:
            with obj:
                seen.append(obj.body)
            if len(seen) == count:
                objects.stop()
            if k == 0:
                raise ZeroDivisionError

    with produce(bed.urls) as queue, ThreadPoolExecutor(3) as pool:
        working = [pool.submit(work, k) for k in range(3)]
        for k in range(count):
            queue.put(b"%d" % k)
        errors = [one.exception(timeout=30) for one in working]
    assert {type(one) for one in errors} <= {type(None), ZeroDivisionError}
    assert sorted(seen) == [b"%d" % k for k in range(count)]
    loops.clear()
    del errors, working
    until(lambda: "queue-consumer" not in [one.name for one in threading.enumerate()])


def test_errors_come_out_in_the_callers_thread():
    with pytest.raises(Unreachable):
        next(iter(consume("http://127.0.0.1:1")))
    with produce("http://127.0.0.1:1") as queue, pytest.raises(Unreachable):
        queue.put(b"x")


def clients_threads():
    return sorted(one.name for one in threading.enumerate() if one.name.startswith("queue-"))


@pytest.mark.parametrize("make", [produce, consume])
def test_a_forked_process_ends_nothing_of_its_parents(make, bed, monkeypatch):
    """The thread does not run there, and nobody waits for it."""
    seen = []
    with monkeypatch.context() as patched, make(bed.urls):
        of_parent = property(lambda thread: seen.append(thread) or True)
        patched.setattr(LoopThread, "is_of_parent", of_parent)
    assert len(clients_threads()) == 1
    seen[0].close()


@pytest.mark.parametrize("bed", [{"visibility_s": 60.0}], indirect=True)
def test_what_has_ended_leaves_neither_a_thread_nor_itself(bed):
    with produce(bed.urls) as queue, consume(bed.urls) as consumer:
        assert clients_threads() == ["queue-consumer", "queue-producer"]
        name = queue.put(b"x", content_type="text/plain", deadline_s=5.0)
        with pytest.raises(InputError, match="deadline_s: expected seconds"):
            queue.put(b"y", deadline_s=0.0)
        with next(iter(consumer)) as obj:
            assert (obj.id, obj.content_type) == (name, "text/plain")
        queue.put(b"z")
        next(iter(consumer))
    assert clients_threads() == []
    until(lambda: sum(one.objects.buffered for one in bed.them) == 1)
    consumer.__exit__(None, None, None)
    with pytest.raises(Unreachable), consume("http://127.0.0.1:1"):
        pass
    clients = [produce(bed.urls), consume(bed.urls)]
    with pytest.raises(ZeroDivisionError), clients[0], clients[1]:
        raise ZeroDivisionError
    assert clients_threads() == []
    alive = [weakref.ref(one) for one in (*clients, consumer)]
    del clients, consumer, queue, obj
    gc.collect()
    assert [one() for one in alive] == [None] * 3


def test_what_is_left_open_ends_with_the_process(bed, monkeypatch):
    """Before its thread is, which then runs no more."""
    at_end = []
    monkeypatch.setattr(atexit, "register", lambda *call: at_end.append(call))
    consumer, producer = consume(bed.urls), produce(bed.urls)
    consumer.__enter__()
    producer.__enter__()
    assert clients_threads() == ["queue-consumer", "queue-producer"]
    for close, *given in at_end:
        close(*given)
    assert clients_threads() == []


async def test_a_consumer_begins_once(bed):
    consumer = consume(bed.urls)
    async with consumer:
        with pytest.raises(RuntimeError, match="has not begun"):
            await consumer.__aenter__()
