"""The synchronous twins of `produce` and `consume`: producers run in a thread of their own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from spillover.client import Unreachable, consume, produce
from spillover.core.queue import events as ev
from spillover.live.engine.loop_thread import LoopThread
from support.queue_producers import producers
from support.waiting import until


class Bed:
    """Two producers."""

    def __init__(self):
        self.thread = LoopThread("producers")
        self._running = producers(2)
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
def bed():
    bed = Bed()
    yield bed
    bed.close()


def test_objects_come_in_order(bed):
    with produce(bed.urls[:1]) as queue:
        names = [queue.put(b"%d" % k) for k in range(4)]
        assert names == [bed.them[0].shell.object_id(k + 1) for k in range(4)]
        assert "queue-producer" in [one.name for one in threading.enumerate()]
    assert "queue-producer" not in [one.name for one in threading.enumerate()]
    seen = []
    for obj in consume(bed.urls):
        with obj:
            seen.append(obj.body)
        if len(seen) == 4:
            break
    assert seen == [b"0", b"1", b"2", b"3"]
    assert bed.them[0].objects.acknowledged == 4
    until(lambda: "queue-consumer" not in [one.name for one in threading.enumerate()])


def test_an_exception_gives_the_object_back(bed):
    with produce(bed.urls) as queue, consume(bed.urls) as consumer:
        queue.put(b"x")
        objects = iter(consumer)
        obj = next(objects)
        with pytest.raises(ZeroDivisionError), obj:
            raise ZeroDivisionError
        again = next(objects)
        assert (again.id, again.deliveries) == (obj.id, 2)
        again.nack()
        with next(objects) as third:
            assert third.deliveries == 3
            third.ack()
        consumer.stop()
        assert list(objects) == []


def test_a_stop_from_another_thread_ends_the_wait(bed):
    consumer = consume(bed.urls)
    ended = threading.Event()

    def look():
        assert list(consumer) == []
        ended.set()

    thread = threading.Thread(target=look)
    thread.start()
    until(lambda: any(one.shell.machine.takes for one in bed.them))
    consumer.stop()
    assert ended.wait(5)
    thread.join()


def test_a_lost_object_is_told(bed):
    with produce(bed.urls) as queue, consume(bed.urls, take_s=1.0) as consumer:
        queue.put(b"x")
        obj = next(iter(consumer))
        bed.nack(obj.grant)
        until(lambda: obj.lost)


def test_errors_come_out_in_the_callers_thread():
    with pytest.raises(Unreachable):
        next(iter(consume("http://127.0.0.1:1")))
    with produce("http://127.0.0.1:1") as queue, pytest.raises(Unreachable):
        queue.put(b"x")


def test_a_consumer_begins_once(bed):
    async def main():
        consumer = consume(bed.urls)
        async with consumer:
            with pytest.raises(RuntimeError, match="has not begun"):
                await consumer.__aenter__()

    asyncio.run(main())
