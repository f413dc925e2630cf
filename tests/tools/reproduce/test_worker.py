"""What a process that computes figures tells of each of them."""

from __future__ import annotations

import pytest

from spillover.model.errors import RunError
from spillover.tools.reproduce import worker
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_progress_is_told_now_and_then(told, line, monkeypatch):
    monkeypatch.setattr(worker, "TELL_EVERY_S", 0.2)

    def compute(effort, seed, tell):
        for step in range(1000):
            tell(step / 1000)
        return {"x": [1, 2]}

    shares = [one for one in told(line(name="a-1", compute=compute)) if isinstance(one, Share)]
    assert 1 <= len(shares) < 50
    assert shares[0] == Share(0.0)


@pytest.mark.slow
def test_who_listens_no_more_ends_the_work(line, monkeypatch, tmp_path):
    monkeypatch.setattr(worker, "figures", lambda: {"a-1": line(name="a-1")})

    class Gone:
        def recv(self):
            return Task("a-1", Effort(full=False), 5, tmp_path)

        def send(self, _):
            raise BrokenPipeError

    work(Gone())
