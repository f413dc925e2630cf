"""Log lines: their shapes, and that a place where they cannot be written harms nobody."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spillover.live.logs import TEXT_FORMAT, HarmlessHandler, JsonLines

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
    """Time, level and message; an exception follows on lines of its own."""
    logger, _ = logger_to(pipe[1], logging.Formatter(TEXT_FORMAT))
    logger.warning("only %d left", 5, extra={"request_id": "r1"})
    try:
        raise ValueError("why")  # noqa: TRY301 - it is the logging of it that is looked at
    except ValueError:
        logger.exception("failed \udcff")
    first, second, *trace = lines_of(pipe[0])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING only 5 left", first)
    assert second.endswith("ERROR failed \\udcff")
    assert trace[-1] == "ValueError: why"


def test_json_lines(pipe):
    """One object a line; request and trace only where the record has them."""
    logger, _ = logger_to(pipe[1], JsonLines("a"))
    logger.info("two\nlines", extra={"request_id": "r1", "traceparent": "00-ab"})
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
        "traceparent": "00-ab",
    }
    assert set(second) == {"at", "level", "logger", "message", "cluster", "exception"}
    assert second["exception"].endswith("ValueError: why")


def test_a_pipe_that_nobody_reads_does_not_hold_up_the_writer(pipe):
    """What does not fit is dropped and counted, and told of once there is room again."""
    logger, handler = logger_to(pipe[1], JsonLines("a"))
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
    told = [json.loads(line)["message"] for line in lines]
    assert told[-2:] == ["2 log lines could not be written", "last"]
    assert len(told) == sent + 1
    assert handler.lost == 0


def test_arguments_that_do_not_fit_are_no_error(pipe, capsys):
    """A mistake in a call that logs is not the caller's end, nor a traceback."""
    logger, handler = logger_to(pipe[1], JsonLines("a"))
    logger.info("%d", "x")
    assert handler.lost == 1
    assert capsys.readouterr() == ("", "")


PROGRAM = """
import logging, sys
from spillover.live.logs import configure_logs

configure_logs("a", as_json=sys.argv[1] == "json", log_requests="requests" in sys.argv)
logging.getLogger("spillover.requests").info("one request")
logging.getLogger("spillover.other").info("other")
print("here")
"""


def run(*arguments, **where):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, check=False, **where
    )


def test_requests_are_logged_only_if_asked_for():
    """The rest is at any rate, on standard error."""
    quiet = run("text", stderr=subprocess.PIPE)
    assert quiet.stderr.decode().endswith("INFO other\n")
    assert b"one request" not in quiet.stderr
    told = run("json", "requests", stderr=subprocess.PIPE).stderr.splitlines()
    assert [json.loads(line)["message"] for line in told] == ["one request", "other"]


def test_a_full_disk_is_no_ones_end(require):
    """Exit status 0, as if all had been written."""
    require(FULL.exists(), "/dev/full")
    with FULL.open("wb") as full:
        done = run("text", stderr=full)
    assert (done.returncode, done.stdout) == (0, b"here\n")


def test_a_standard_error_that_was_closed():
    """Lines go nowhere: the descriptor may by then be something else."""
    done = subprocess.run(
        ["sh", "-c", '"$@" 2>&-', "sh", sys.executable, "-c", PROGRAM, "text"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"here\n")
