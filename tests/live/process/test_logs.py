"""Log lines: their shapes, and that a place where they cannot be written harms nobody."""

import json
import logging
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from spillover.live.process import logs
from spillover.live.process.logs import (
    HarmlessHandler,
    JsonLines,
    Message,
    OncePerPeriod,
    TextLines,
)

FULL = Path("/dev/full")


@pytest.fixture
def pipe():
    """A pipe of the smallest size that the system gives, as (reading end, writing end)."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def logger_to(descriptor, formatter):
    logger = logging.Logger("spillover.test")  # noqa: LOG001 - nobody else shall have it
    handler = HarmlessHandler(descriptor)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    return logger, handler


def lines_of(reading):
    return os.read(reading, 1 << 20).decode().splitlines()


def test_text_lines(pipe):
    """Time with its offset from UTC, level, message and its fields; an exception follows on lines
    of its own."""
    logger, _ = logger_to(pipe[1], TextLines())
    logger.warning(Message("few left", left=5, of="two words", why="", nothing=None, ms=0.5))
    try:
        raise ValueError("why")  # noqa: TRY301 - it is the logging of it that is looked at
    except ValueError:
        logger.exception("failed \udcff")
    first, second, *trace = lines_of(pipe[0])
    at, _, said = first.partition(" ")
    assert said == 'WARNING few left left=5 of="two words" why="" ms=0.5'
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", at)
    written = datetime.fromisoformat(at)
    assert written.utcoffset() == datetime.now().astimezone().utcoffset()
    assert abs(datetime.now(UTC) - written) < timedelta(minutes=1)
    assert second.endswith("ERROR failed \\udcff")
    assert trace[-1] == "ValueError: why"


def test_json_lines(pipe):
    """One object a line: the words are constant, what is particular is in fields of its own, and
    none of them hides what every line has."""
    logger, _ = logger_to(pipe[1], JsonLines(("cluster", "a")))
    fields = {"request_id": "r1", "traceparent": None, "cluster": "b", "hops": 2, "path": ["a"]}
    logger.info(Message("two\nlines", **fields))
    try:
        raise ValueError("why")  # noqa: TRY301 - it is the logging of it that is looked at
    except ValueError:
        logger.exception("failed")
    first, second = map(json.loads, lines_of(pipe[0]))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("at"))
    assert first == {
        "level": "INFO",
        "logger": "spillover.test",
        "message": "two\nlines",
        "cluster": "a",
        "request_id": "r1",
        "hops": 2,
        "path": ["a"],
    }
    assert set(second) == {"at", "level", "logger", "message", "cluster", "exception"}
    assert second["exception"].endswith("ValueError: why")


def test_a_traceback_of_a_users_code_stays_readable(pipe):
    """In text on lines of its own, in JSON in one field; nothing else breaks a line of text."""
    said = Message("handler failed", traceback="Traceback:\n  line 1", reason="two\nlines")
    for formatter in (TextLines(), JsonLines(("cluster", "a"))):
        logger_to(pipe[1], formatter)[0].error(said)
    first, *trace, as_json = lines_of(pipe[0])
    assert first.endswith(' ERROR handler failed reason="two\\nlines"')
    assert trace == ["Traceback:", "  line 1"]
    assert json.loads(as_json)["traceback"] == "Traceback:\n  line 1"


class Clock:
    """Records at times that a test says, and what a filter made of them."""

    def __init__(self, monkeypatch):
        self.now_s = 100.0
        self.once = OncePerPeriod()
        monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def say(self, words, **fields):
        """What is let through, as text; None of what is held back."""
        record = logging.makeLogRecord({"msg": Message(words, **fields) if fields else words})
        return str(record.msg) if self.once.filter(record) else None


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_what_is_held_back_is_told_once_the_second_is_over(clock):
    """To the instant; of a line that is no message, in words."""
    assert clock.say("away", left=1) == "away left=1"
    assert clock.say("plain") == "plain"
    clock.now_s = 100.0 + logs.PERIOD_S - 0.001
    assert [clock.say("away", left=2) for _ in range(3)] == [None] * 3
    assert clock.say("plain") is None
    clock.now_s = 100.0 + logs.PERIOD_S
    assert clock.say("away", left=3) == "away left=3 held_back=3"
    assert clock.say("plain") == "plain (and 1 more since the last such line)"
    clock.now_s += logs.PERIOD_S
    assert clock.say("away", left=4) == "away left=4"
    assert clock.say("plain") == "plain"


def test_beyond_a_bound_all_further_kinds_are_one(clock):
    """Until some of those before have said nothing for a second."""
    for number in range(logs.KINDS_MAX):
        assert clock.say("away", neighbor=number) is not None
    assert clock.say("away", neighbor=0) is None
    assert clock.say("away", neighbor="new") is not None
    assert clock.say("away", neighbor="newer") is None, "as if it were the same"
    assert clock.say("back", neighbor="new") is not None
    clock.now_s += logs.PERIOD_S
    assert clock.say("away", neighbor="new").endswith("neighbor=new")
    assert clock.say("away", neighbor="newer").endswith("neighbor=newer")
    assert clock.say("away", neighbor=0).endswith("neighbor=0"), "and of it nothing is known"
    assert len(clock.once._next_s) == 3
    assert len(clock.once._held_back) == 0


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("word", "word"),
        ("zwölf", "zwölf"),
        ("two words", '"two words"'),
        ("zwei Wörter", '"zwei Wörter"'),
        ('a"b', '"a\\"b"'),
        ("a=b", '"a=b"'),
        ("", '""'),
        ("line\n\u2028 zwölf", '"line\\n\\u2028 zw\\u00f6lf"'),
        (0.5, "0.5"),
        (["a", None], '["a", null]'),
        (Path("a"), '"a"'),
    ],
)
def test_a_value_is_a_word_or_json(value, told):
    assert str(Message("said", value=value)) == f"said value={told}"


def test_a_line_that_was_torn_is_ended_before_the_next(pipe):
    """Nothing else is to be taken for its end."""
    os.set_blocking(pipe[1], False)
    logger, handler = logger_to(pipe[1], TextLines())
    filler = 0
    while True:
        try:
            filler += os.write(pipe[1], b"." * 4096)
        except BlockingIOError:
            break
    read = os.read(pipe[0], 3 * 4096)
    logger.info("torn %s", "x" * 20_000)
    assert handler.lost == 1
    while len(read) < filler + 4096:
        read += os.read(pipe[0], 1 << 20)
    logger.info("after")
    read += os.read(pipe[0], 1 << 20)
    first, second, last = read[filler:].decode().splitlines()
    assert "INFO torn xxx" in first
    assert second.endswith("WARNING log lines could not be written lost=1")
    assert last.endswith("INFO after")
    logger.info("more")
    assert os.read(pipe[0], 1 << 20).decode().count("\n") == 1


def test_a_pipe_that_nobody_reads_does_not_hold_up_the_writer(pipe):
    """What does not fit is dropped and counted, and told of once there is room again."""
    logger, handler = logger_to(pipe[1], JsonLines(("cluster", "a")))
    sent = 0
    while not handler.lost:
        sent += 1
        logger.info("line %d %s", sent, "x" * 6000)
    logger.info("lost too")
    assert handler.lost == 2
    read = b""
    while read.count(b"\n") < sent - 1:
        read += os.read(pipe[0], 1 << 20)
    logger.info("last")
    read += os.read(pipe[0], 1 << 20)
    lines = [line for line in read.decode().splitlines() if line.endswith("}")]
    told = [json.loads(line) for line in lines]
    assert told[-2]["message"] == "log lines could not be written"
    assert (told[-2]["lost"], told[-1]["message"]) == (2, "last")
    assert len(told) == sent + 1
    assert handler.lost == 0


PROGRAM = """
import logging, sys
from spillover.live.process.logs import configure_logs

configure_logs("a", as_json=sys.argv[1] == "json", log_requests="requests" in sys.argv)
logging.getLogger("spillover.requests").info("one request")
logging.getLogger("spillover.other").info("other")
print("here")
"""


def run(*arguments, **where):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, check=False, **where
    )


@pytest.mark.processes
def test_requests_are_logged_only_if_asked_for():
    """The rest is at any rate, on standard error."""
    quiet = run("text", stderr=subprocess.PIPE)
    assert quiet.stderr.decode().endswith("INFO other\n")
    assert b"one request" not in quiet.stderr
    told = run("json", "requests", stderr=subprocess.PIPE).stderr.splitlines()
    assert [json.loads(line)["message"] for line in told] == ["one request", "other"]


OF_ALL_KINDS = """
import os, sys, threading, warnings
from spillover.live.process.logs import configure_logs

configure_logs("a", as_json=True, log_requests=False)

class Ended:
    def __del__(self):
        raise RuntimeError("in del")

print("printed")
print("two\\nlines", file=sys.stderr)
sys.stderr.buffer.write(b"bytes\\xff\\n")
warnings.warn("warned")
Ended()
thread = threading.Thread(target=lambda: 1 / 0, name="mine")
thread.start()
thread.join()
if os.fork() == 0:
    print("in a child", file=sys.stderr)
    os._exit(0)
os.wait()
sys.stderr.write("not ended")
raise ValueError("uncaught")
"""


@pytest.mark.processes
def test_all_lines_are_json_whoever_writes_them():
    """What is printed, warnings, and exceptions that nobody caught: all with the cluster."""
    command = [sys.executable, "-c", OF_ALL_KINDS]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 1
    (printed,) = (json.loads(line) for line in done.stdout.splitlines())
    assert (printed["logger"], printed["message"]) == ("stdout", "printed")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["cluster"] for line in lines} == {"a"}
    assert sorted(line["message"].split(":")[-1].strip() for line in lines) == [
        *("bytes\\xff", "exception ignored", "in a child", "lines", "not ended", "two"),
        *("unhandled exception", "unhandled exception", "warned"),
    ]
    told = {line["exception"].split("\n")[-1] for line in lines if "exception" in line}
    assert told == {
        *("RuntimeError: in del", "ZeroDivisionError: division by zero", "ValueError: uncaught"),
    }


USERS_OWN = """
import logging, logging.config
import spillover.live.overflow.ending as service
from spillover.live.process.logs import configure_logs

configure_logs("a", as_json=False, log_requests=False)
for silence in (
    lambda: logging.config.dictConfig({"version": 1}),
    lambda: logging.config.dictConfig({"version": 1, "root": {"level": "ERROR", "handlers": []}}),
    lambda: logging.config.dictConfig({"version": 1, "loggers": {"spillover": {}}}),
    lambda: logging.basicConfig(force=True, level=logging.ERROR),
    lambda: logging.disable(),
):
    silence()
    service._log.info("heard")
logging.getLogger("of.a.user").critical("not heard")
"""


@pytest.mark.processes
def test_what_users_configure_does_not_silence_a_service():
    """What they say of all loggers, or of all that exist, holds for their own."""
    done = subprocess.run([sys.executable, "-c", USERS_OWN], stderr=subprocess.PIPE, check=True)
    told = done.stderr.decode().splitlines()
    assert [line.split(" ")[-1] for line in told] == ["heard"] * 5


@pytest.mark.processes
def test_a_full_disk_is_no_ones_end(require):
    """Exit status 0, as if all had been written."""
    require(FULL.exists(), "/dev/full")
    with FULL.open("wb") as full:
        done = run("text", stderr=full)
    assert (done.returncode, done.stdout) == (0, b"here\n")


@pytest.mark.processes
def test_a_standard_error_that_was_closed():
    """Lines go nowhere: the descriptor may by then be something else."""
    done = subprocess.run(
        ["sh", "-c", '"$@" 2>&-', "sh", sys.executable, "-c", PROGRAM, "text"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"here\n")
