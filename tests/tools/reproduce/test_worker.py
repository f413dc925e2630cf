"""What a process that computes figures tells of each of them."""

from __future__ import annotations

import pytest

from spillover.model.errors import RunError
from spillover.tools.reproduce import networked_queues, worker
from spillover.tools.reproduce.figure import Effort
from spillover.tools.reproduce.record import read_record
from spillover.tools.reproduce.worker import Failed, Finished, Share, Task, work


@pytest.fixture
def told(tmp_path, monkeypatch):
    """`told(figure, ...)`: what is told of figures of these names, one after the other."""

    def play(*figures):
        monkeypatch.setattr(worker, "figures", lambda: {one.name: one for one in figures})
        tasks = [Task(one.name, Effort(full=False), 5, tmp_path) for one in figures]
        news = []

        class Pipe:
            """Its other side is closed once all tasks have been taken."""

            def recv(self):
                if not tasks:
                    raise EOFError
                return tasks.pop(0)

            def send(self, one):
                news.append(one)

        work(Pipe())
        return news

    return play


def test_one_after_the_other_whatever_becomes_of_them(told, line, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "TELL_EVERY_S", 0.0)

    def compute(effort, seed, tell):
        for share in (-0.5, 0.25, 1.5):
            tell(share)
        return {"x": [1, 2, seed]}

    def fail(*_):
        raise KeyError("no such\nthing")

    def refuse(*_):
        raise RunError("too\n  late")

    news = told(
        line(name="a-1", compute=compute),
        line(name="a-2", compute=fail),
        line(name="a-3", compute=refuse),
    )
    assert news[:4] == [Share(0.0), Share(0.25), Share(1.0), Finished()]
    assert news[4].reason.startswith("KeyError: 'no such\\nthing' (test_worker.py, line ")
    assert news[5:] == [Failed("too late")]
    record = read_record("a-1", tmp_path)
    assert (record.seed, record.values, record.effort) == (5, {"x": [1, 2, 5]}, "default")
    assert record.computed_s >= 0.0
    light, dark = ((tmp_path / name).read_bytes() for name in (record.image, record.dark_image))
    assert light != dark


def test_progress_is_told_now_and_then(told, line, monkeypatch):
    monkeypatch.setattr(worker, "TELL_EVERY_S", 0.2)

    def compute(effort, seed, tell):
        for step in range(1000):
            tell(step / 1000)
        return {"x": [1, 2]}

    shares = [one for one in told(line(name="a-1", compute=compute)) if isinstance(one, Share)]
    assert 1 <= len(shares) < 50
    assert shares[0] == Share(0.0)


def test_who_listens_no_more_ends_the_work(line, monkeypatch, tmp_path):
    monkeypatch.setattr(worker, "figures", lambda: {"a-1": line(name="a-1")})

    class Gone:
        def recv(self):
            return Task("a-1", Effort(full=False), 5, tmp_path)

        def send(self, _):
            raise BrokenPipeError

    work(Gone())


def test_larger_federations_share_the_progress(monkeypatch):
    """A third for each; of the runs only the speed-ups are kept."""
    asked = []

    def paired(topology, seeds, on_progress):
        asked.append((topology.name, seeds))
        on_progress(0.5)
        on_progress(1.0)
        times = {"mean": 2.0, "max": 2.0, "min": 2.0, "std": 2.0}
        sides = {"isolated": times, "networked": times}
        per_cluster = {side: {"a": times} for side in sides}
        return {"topology": topology.name, "runs": [{"all": sides, "per_cluster": per_cluster}]}

    monkeypatch.setattr(networked_queues, "_paired", paired)
    told = []
    found = networked_queues.compute_larger(Effort(full=False), 3, told.append)
    assert asked == [(name, range(3, 23)) for name in ("ring5", "chord10", "chord20")]
    assert told == [pytest.approx(k / 6) for k in range(1, 7)]
    assert list(found["topologies"]) == ["ring5", "chord10", "chord20"]
    assert "runs" not in found["topologies"]["ring5"]
    assert found["seeds"] == list(range(3, 23))
