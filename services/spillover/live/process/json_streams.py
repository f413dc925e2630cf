"""All that Python writes besides log records, as JSON lines too: what is printed, warnings, and
exceptions that nobody has caught. What C code and other programs write is not seen here.

Log records themselves, and what any line looks like, are in `logs`.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import warnings
from contextlib import suppress
from typing import Any, TextIO, cast

from spillover.live.process.logs import HarmlessHandler, JsonLines, Message

UNENDED_BYTES_MAX = 65_536
"""A line that has not ended by then is written in parts."""

_of_stderr: HarmlessHandler | None = None


def take_over_stderr(who: tuple[str, str] | None = None) -> HarmlessHandler | None:
    """Make JSON lines of all that Python writes to standard error from now on. Called again, say
    also whose they are. Returns what writes them, for log records; None where standard error was
    closed before Python began."""
    global _of_stderr  # noqa: PLW0603 - a process has one standard error
    if _of_stderr is None:
        if (handler := _handler_of(sys.stderr)) is None:
            return None
        _of_stderr = handler
        sys.stderr = _lines("stderr", logging.WARNING, handler)
        _set_hooks(handler)
    _of_stderr.setFormatter(JsonLines(who))
    return _of_stderr


def take_over(who: tuple[str, str]) -> HarmlessHandler | None:
    """Do so for standard error, and for what is printed. What is written to a descriptor itself
    stays as it is."""
    handler = _handler_of(sys.stdout)
    if handler is not None:
        handler.setFormatter(JsonLines(who))
        sys.stdout = _lines("stdout", logging.INFO, handler)
    return take_over_stderr(who)


def tell_error(line: str) -> None:
    """Write why this process ends; standard error has been taken over."""
    if _of_stderr is not None:
        _tell(_of_stderr, logging.ERROR, "spillover", line)


class _Lines(io.RawIOBase):
    """A file whose text becomes log records, line by line. It is guarded by the lock of its
    handler, which a forked child finds free."""

    def __init__(self, name: str, level: int, handler: HarmlessHandler) -> None:
        self._name, self._level, self._handler = name, level, handler
        self._begun = b""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._handler.descriptor

    def write(self, data: Any) -> int:
        given = bytes(data)
        self._handler.acquire()
        try:
            *lines, self._begun = (self._begun + given).split(b"\n")
            for line in lines:
                self._say(line)
            if len(self._begun) > UNENDED_BYTES_MAX:
                self.flush()
        finally:
            self._handler.release()
        return len(given)

    def flush(self) -> None:
        self._handler.acquire()
        try:
            line, self._begun = self._begun, b""
            self._say(line)
        finally:
            self._handler.release()

    def _say(self, line: bytes) -> None:
        if text := line.decode("utf-8", "backslashreplace").rstrip():
            _tell(self._handler, self._level, self._name, text)


def _lines(name: str, level: int, handler: HarmlessHandler) -> TextIO:
    raw = cast("Any", _Lines(name, level, handler))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def _handler_of(stream: TextIO | None) -> HarmlessHandler | None:
    """Returns the handler, or None where there is nothing to write to."""
    with suppress(AttributeError, OSError, ValueError):
        return HarmlessHandler(cast("TextIO", stream).fileno())
    return None


def _tell(
    handler: logging.Handler, level: int, logger: str, said: object, exc_info: Any = None
) -> None:
    """Beside all loggers: users' code may have silenced them."""
    handler.handle(logging.LogRecord(logger, level, __file__, 0, said, None, exc_info))


def _set_hooks(handler: logging.Handler) -> None:
    def on_exception(*error: Any) -> None:
        _tell(handler, logging.CRITICAL, "python", Message("unhandled exception"), error)

    def in_thread(told: threading.ExceptHookArgs) -> None:
        if told.exc_type is not SystemExit:
            said = Message("unhandled exception", thread=told.thread and told.thread.name)
            error = told.exc_type, told.exc_value, told.exc_traceback
            _tell(handler, logging.ERROR, "python", said, error)

    def unraisable(told: sys.UnraisableHookArgs) -> None:
        said = Message(told.err_msg or "exception ignored", object=told.object)
        error = told.exc_type, told.exc_value, told.exc_traceback
        _tell(handler, logging.ERROR, "python", said, error)

    shown = warnings.showwarning

    def on_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if file is not None:
            shown(message, category, filename, lineno, file, line)
            return
        said = f"{filename}:{lineno}: {category.__name__}: {message}"
        _tell(handler, logging.WARNING, "py.warnings", said)

    sys.excepthook, threading.excepthook = on_exception, in_thread
    sys.unraisablehook, warnings.showwarning = unraisable, on_warning
