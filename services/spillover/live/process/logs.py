"""The form of a node's logs, and how they stay harmless: readable and small while something fails
thousands of times a second, and never in the way when they cannot be written.

What is logged is a `Message`: words that are short and constant, and fields that say what is
particular about this case. Lines of JSON have them as fields, text and other formatters behind the
words. What is logged, and when, is decided where it happens.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from spillover.model.ids import told_inside

if TYPE_CHECKING:
    from spillover.model.request import Request

PERIOD_S = 1.0

REQUESTS_LOGGER = "spillover.requests"
"""One line for each request of a client that has ended, at level INFO."""

OWN_LOGGERS = ("spillover", "uvicorn")
"""The first part of the names of those that a service writes to."""

KINDS_MAX = 1000
"""Kinds of records that are told apart at a time."""

TOLD_APART_BY = ("neighbor", "peer", "upstream", "worker", "failure")
"""The fields by which records of one message are of different kinds: what one neighbor does must
not hide what another one does, nor one way to fail another."""

CHUNK_BYTES = 4096
"""A pipe that says it can be written takes this much at once (PIPE_BUF), without blocking."""

TRACEBACK = "traceback"
"""The one field whose value is text of many lines: Python's account of an error of a user's."""


class Message:
    """The message of a log record: words that are always the same, and the particulars of this
    case, by name. Durations and sizes have their unit last in the name; None is left out."""

    __slots__ = ("fields", "words")

    def __init__(self, words: str, /, **fields: object) -> None:
        self.words = words
        self.fields = {name: value for name, value in fields.items() if value is not None}

    def __str__(self) -> str:
        """Returns it on one line, apart from a traceback, which is on lines of its own behind
        it."""
        fields = self.fields.items()
        said = [f"{name}={_as_text(value)}" for name, value in fields if name != TRACEBACK]
        line = " ".join([self.words, *said])
        return (
            f"{line}\n{str(self.fields[TRACEBACK]).rstrip()}" if TRACEBACK in self.fields else line
        )


def about(request: Request) -> dict[str, str | None]:
    """Returns the fields of a Message that concerns this request."""
    parent = None if request.trace is None else request.trace.parent
    return {"request_id": told_inside(request.id), "traceparent": parent}


def _as_text(value: object) -> str:
    """Returns a value as it is if it is a word, else as JSON: one line in any case."""
    if not isinstance(value, str):
        return json.dumps(value, default=str)
    if value.isprintable() and value and not set(' "=') & set(value):
        return value
    return json.dumps(value, ensure_ascii=not value.isprintable())


class OncePerPeriod(logging.Filter):
    """Lets one record of each kind through a second, and says in the next one of that kind how many
    it held back. A kind is a message's words, without what is filled in, and the neighbor, peer,
    upstream, worker or way to fail that it is about.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next_s: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now_s = time.monotonic()
        kind = self._kind(record, now_s)
        if now_s < self._next_s.get(kind, 0.0):
            self._held_back[kind] = self._held_back.get(kind, 0) + 1
            return False
        self._next_s[kind] = now_s + PERIOD_S
        held_back = self._held_back.pop(kind, 0)
        if held_back:
            said: object = record.msg
            if isinstance(said, Message):
                record.msg = Message(said.words, **said.fields, held_back=held_back)
            else:
                record.msg = f"{said} (and {held_back} more since the last such line)"
        return True

    def _kind(self, record: logging.LogRecord, now_s: float) -> str:
        said: object = record.msg
        if not isinstance(said, Message):
            return str(said)
        kind = "\n".join([said.words, *(str(said.fields.get(one)) for one in TOLD_APART_BY)])
        if kind not in self._next_s and len(self._next_s) >= KINDS_MAX:
            for over in [one for one, next_s in self._next_s.items() if next_s <= now_s]:
                del self._next_s[over]
                self._held_back.pop(over, None)
            if len(self._next_s) >= KINDS_MAX:
                return said.words
        return kind


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, message, and whose log it is (`who`: a name and a
    value, if known); then the message's fields, and exception as one string if there was one."""

    def __init__(self, who: tuple[str, str] | None) -> None:
        super().__init__()
        self._who = {} if who is None else dict([who])

    def format(self, record: logging.LogRecord) -> str:
        said: object = record.msg
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": said.words if isinstance(said, Message) else record.getMessage(),
            **self._who,
        }
        if isinstance(said, Message):
            line |= {name: value for name, value in said.fields.items() if name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


_ESCAPED = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in b"\t\n"
}
"""Control characters, which may move a terminal's cursor or look like other lines."""


class TextLines(logging.Formatter):
    """The local time and its offset from UTC, level, message; an exception follows on lines of its
    own. Control characters are escaped: what is logged may come from anybody."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).translate(_ESCAPED)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Returns the text of a record in one line: only a Message may have more, of a
        traceback."""
        if not isinstance(record.msg, Message):
            record.message = record.message.replace("\n", "\\n")
        return super().formatMessage(record)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        del datefmt
        at = datetime.fromtimestamp(record.created, UTC).astimezone()
        return at.isoformat(timespec="milliseconds")


class HarmlessHandler(logging.Handler):
    """Writes lines to a file descriptor, and drops those that it cannot write now: the disk is
    full, or nobody reads the pipe. The next line that goes through says how many were lost.

    Nothing is buffered, so that nothing is left to fail when the process ends.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.lost = 0
        self.descriptor = descriptor
        self._torn = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record) + "\n"
            if self.lost:
                lines = self._of_loss() + "\n" + lines
            if self._write(lines.encode("utf-8", "backslashreplace")):
                self.lost = 0
            else:
                self.lost += 1
        except Exception:  # noqa: BLE001 - arguments that do not fit, a file that was closed
            self.lost += 1

    def _of_loss(self) -> str:
        said = Message("log lines could not be written", lost=self.lost)
        return self.format(
            logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, None, None)
        )

    def _write(self, data: bytes) -> bool:
        """Write a line, and return whether all of it went out. After a part of a line the next one
        begins on its own."""
        if self._torn:
            data = b"\n" + data
        left = memoryview(data)
        while left:
            written = self._write_some(left[:CHUNK_BYTES])
            if not written:
                return False
            left = left[written:]
            self._torn = bool(left)
        return True

    def _write_some(self, data: memoryview) -> int:
        try:
            _, writable, _ = select.select([], [self.descriptor], [], 0)
            return os.write(self.descriptor, data) if writable else 0
        except OSError:
            return 0


class LogSettings(NamedTuple):
    """How the logs of a process look. `role` is what JSON lines call `who` writes them: a cluster,
    a producer, or a node of a lease group."""

    who: str
    as_json: bool
    log_requests: bool
    role: str


_configured: LogSettings | None = None


def configure_logs(who: str, *, as_json: bool, log_requests: bool, role: str = "cluster") -> None:
    """Send the logs of this process to standard error, if that is a file that one can write to; as
    JSON with all else that it writes."""
    configure_as(LogSettings(who, as_json, log_requests, role))


def configure_as(settings: LogSettings) -> None:
    """Configure the logs of this process, which may be another one's worker, like that."""
    global _configured  # noqa: PLW0603 - of this process, as its loggers are
    _configured = settings
    requests = logging.INFO if settings.log_requests else logging.WARNING
    logging.getLogger(REQUESTS_LOGGER).setLevel(requests)
    handler: logging.Handler = logging.NullHandler()
    if settings.as_json:
        from spillover.live.process import json_streams  # noqa: PLC0415 - it needs this module

        handler = json_streams.take_over((settings.role, settings.who)) or handler
    else:
        with suppress(AttributeError, OSError):  # None if it was closed before Python began
            handler = HarmlessHandler(sys.stderr.fileno())
            handler.setFormatter(TextLines())
    if logging.root.handlers:
        return  # whoever has this process has configured them
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in OWN_LOGGERS:
        own = logging.getLogger(name)
        own.addHandler(handler)
        own.setLevel(logging.INFO)
        own.propagate = False
    _Own.handler = handler
    keep_own_loggers()


def log_settings() -> LogSettings | None:
    """Returns what the logs of this process are configured as, for those that it starts."""
    return _configured


def keep_own_loggers() -> None:
    """Users' modules configure logging, too, and mean their own: `dictConfig` disables all loggers
    that exist, `basicConfig(force=True)` takes all handlers away. From now on that leaves alone
    those that exist here and are a service's own, whose logs were configured before."""
    if _Own.handler is None:
        return
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        if name.partition(".")[0] in OWN_LOGGERS and type(logger) is logging.Logger:
            logger.__class__ = _OwnLogger
            logger.manager = _own_manager


class _Own:
    """The log handler of this process."""

    handler: logging.Handler | None = None


class _OwnManager(logging.Manager):
    """`logging.disable` tells the usual one."""

    def __init__(self) -> None:
        super().__init__(logging.root)
        self.loggerDict = logging.Logger.manager.loggerDict


_own_manager = _OwnManager()


class _OwnLogger(logging.Logger):
    """One that others do not silence by way of all loggers. Its level is still theirs to set."""

    # Made of what calls nothing of ours: this is asked for each line.
    disabled = property(attrgetter("_is_off"), lambda _, __: None)
    _is_off = False

    def removeHandler(self, hdlr: logging.Handler) -> None:  # noqa: N802
        if hdlr is not _Own.handler:
            super().removeHandler(hdlr)
