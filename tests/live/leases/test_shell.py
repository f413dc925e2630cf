"""Whole members on a real Redis: they share partitions, hand over, fence themselves and give up."""

import signal
import threading

from support.loop import until


class Work:
    """A handler that notes which partitions run, and that no two run one at a time."""

    def __init__(self):
        self.running = {}
        self.twice = []
        self._lock = threading.Lock()

    def begin(self, node, partition, epoch):
        with self._lock:
            if partition in self.running:
                self.twice.append((partition, self.running[partition], node))
            self.running[partition] = node, epoch

    def end(self, partition):
        with self._lock:
            del self.running[partition]

    def on_thread(self, node):
        def handle(partition, epoch, stop_event):
            self.begin(node, partition, epoch)
            stop_event.wait()
            self.end(partition)

        return handle

    def on_loop(self, node):
        async def handle(partition, epoch, stop_event):
            self.begin(node, partition, epoch)
            await stop_event.wait_async()
            self.end(partition)

        return handle

    def counts(self):
        with self._lock:
            nodes = [node for node, _ in self.running.values()]
        return sorted((node, nodes.count(node)) for node in set(nodes))


async def test_members_share_and_hand_over(group):
    work, events = Work(), []
    async with group("a", work.on_thread("a"), on_event=events.append) as first:
        await until(lambda: work.counts() == [("a", 6)])
        before = dict(work.running)
        async with group("b", work.on_loop("b"), on_event=events.append) as second:
            await until(lambda: work.counts() == [("a", 3), ("b", 3)])
            await until(lambda: (len(first.held), len(second.held)) == (3, 3))
            for partition, (node, epoch) in work.running.items():
                assert node == "a" or epoch > before[partition][1]
        await until(lambda: work.counts() == [("a", 6)])
        assert first.state == "member"
    assert work.running == {}
    assert work.twice == []
    took = [line["partition"] for line in events if line["event"] == "acquired"]
    assert len(took) == 6 + 3 + 3
    assert all(line["epoch"] > 10**12 for line in events if line["event"] == "acquired")
    assert {line["event"] for line in events} >= {"challenged", "grabbed", "releasing", "released"}


async def test_a_store_that_dies_ends_what_is_held(group, redis_servers, tmp_path):
    """Nobody acts beyond the own lease; when it comes back, without its data, work goes on with
    higher epochs."""
    work, events = Work(), []
    with redis_servers.running(tmp_path) as server:
        async with group("a", work.on_thread("a"), on_event=events.append, url=server.url):
            await until(lambda: work.counts() == [("a", 6)])
            before = {partition: epoch for partition, (_, epoch) in work.running.items()}
            events.clear()  # a busy machine may have been late with an answer before
            server.stop(signal.SIGKILL)
            await until(lambda: work.running == {})
            server.restart()
            await until(lambda: work.counts() == [("a", 6)])
            assert all(epoch > before[p] for p, (_, epoch) in work.running.items())
    told = [line["event"] for line in events]
    while_down = told[: told.index("redis_up")]
    # Those that stop in time, when asked to before the deadline, need not be fenced.
    assert while_down.count("fenced") + while_down.count("released") == 6
