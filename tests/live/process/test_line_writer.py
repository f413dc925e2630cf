"""Lines go out in order; a reader that reads no more neither stops nor ends whoever writes."""

import os

from spillover.live.process import line_writer
from spillover.live.process.line_writer import LineWriter


def test_lines_come_in_order():
    reading, writing = os.pipe()
    lines = LineWriter(writing)
    for number in range(100):
        lines.write(str(number))
    lines.close()
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read().split() == [str(number) for number in range(100)]


def test_so_many_lines_are_kept_and_the_others_are_told_of_as_a_number(caplog, monkeypatch):
    """Once, before the next ones are written."""
    monkeypatch.setattr(line_writer, "LINES_MAX", 3)
    reading, writing = os.pipe()
    lines = LineWriter(writing)
    with lines._changed:  # nobody takes any meanwhile
        for number in range(5):
            lines.write(str(number))
    assert os.read(reading, 100) == b"0\n1\n2\n"
    lines.write("5")
    lines.close()
    assert not lines._thread.is_alive()
    assert os.read(reading, 100) == b"5\n"
    assert [record.msg.fields for record in caplog.records] == [{"dropped": 2}]
    os.close(reading)
    os.close(writing)


def test_a_reader_that_does_not_read_is_not_waited_for_in_the_end(monkeypatch):
    monkeypatch.setattr(line_writer, "CLOSE_S", 0.01)
    reading, writing = os.pipe()
    lines = LineWriter(writing)
    assert lines._thread.daemon, "it must not keep the process"
    lines.write("x" * (1 << 20))
    lines.close()
    assert lines._thread.is_alive()
    left = (1 << 20) + 1
    while left:
        left -= len(os.read(reading, left))
    lines._thread.join(20.0)
    assert not lines._thread.is_alive()
    os.close(reading)
    os.close(writing)


def test_a_reader_that_has_gone_ends_nobody(caplog):
    """It is told once."""
    reading, writing = os.pipe()
    os.close(reading)
    lines = LineWriter(writing)
    for _ in range(3):
        lines.write("x")
    lines.close()
    lines = LineWriter(None)
    lines.write("to nowhere")
    lines.close()
    os.close(writing)
    assert caplog.text.count("cannot be written any more") == 1
