"""What is refused of messages and what is borne, of requests and of answers: the one table of it.

`framing` and `heads` refuse by these rules, and docs/http.md shows them; tests hold both against
examples of each.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from spillover.model.passed import METHOD_LENGTH_MAX

HEAD_LIMIT_BYTES: Final = 65_536
"""The longest head; trailers are held to it too."""

FIELDS_MAX: Final = 256
"""Lines of one head."""

ADDED_MAX: Final = 16
"""Headers that a node may add to those of a request that passes through it."""

LENGTH_DIGITS_MAX: Final = 15

INTERIM_MAX: Final = 32
"""Interim answers to one request: a service that sends them for ever does not answer."""

BORNE: Final = "borne"
AS_IT_IS: Final = "as it is"
NOT_THERE: Final = "-"
"""There is no such request, or no such answer."""

ANSWER_REFUSED: Final = 502


class Rule(Enum):
    """Of what may be written so: what becomes of such an answer and of such a request, which is the
    status where it is refused; and what is told to whoever has sent it."""

    # fmt: off
    LF_ALONE = "lines that end with LF alone", BORNE, 400, "expected lines that end with CR and LF"
    BLANKS_BEFORE_COLON = (
        "blanks before a colon", "borne: they are left out", 400, "header: expected NAME: VALUE"
    )
    BLANKS_BEHIND_SIZE = (
        "blanks behind a chunk's length", BORNE, 400, "body: expected the length of a chunk"
    )
    LONG_SIZE = (
        f"a chunk's length of more than {LENGTH_DIGITS_MAX} digits",
        "borne, where the others are zeros", 400, "body: expected the length of a chunk"
    )
    LENGTH_AGAIN = (
        "`Content-Length: 3, 3`, or the same length in more than one line",
        "borne: it is told once", 400, "Content-Length: expected one number"
    )
    LONG_LENGTH = (
        f"a length of more than {LENGTH_DIGITS_MAX} digits", "borne, where the others are zeros",
        400, "Content-Length: expected one number"
    )
    OLD_CHUNKS = (
        "chunks in HTTP/1.0", "borne; the connection ends with it", 400,
        "Transfer-Encoding: expected none in HTTP/1.0"
    )
    CONTROL = (
        "control characters in a value, but NUL", "borne: blanks take their place", 400,
        "expected no control characters"
    )
    BLANKS = (
        "more than one blank between the parts of a first line", BORNE, 400,
        "expected METHOD TARGET HTTP/1.1"
    )
    LATER = "HTTP/1.2 and later, up to 1.9", "read as HTTP/1.1", "read as HTTP/1.1"
    EMPTY_PARTS = (
        "`chunked,`, or other empty parts of that list", BORNE, 400,
        "Transfer-Encoding: expected chunked alone"
    )
    NOT_ASCII = "bytes beyond ASCII in a value", AS_IT_IS, AS_IT_IS
    EXTENSION = "an extension of a chunk", "left out", "left out"
    NO_REASON = "no reason behind a status", AS_IT_IS, NOT_THERE
    NO_HOST = "an empty `Host:`", NOT_THERE, "the service gets its own name"
    HOST_IN_TARGET = (
        "a target with a host (`http://h/a`), another `Host:` beside it", NOT_THERE,
        "the target counts, also as `Host`"
    )
    UPGRADE = (
        "`Upgrade:` to anything that can be done without", NOT_THERE,
        "ignored: clients offer `h2c` and `TLS/1.2` by themselves"
    )
    TUNNEL = (
        "`Upgrade:` to nothing but `websocket`, `spdy`, `connect-udp`, `connect-ip`", NOT_THERE,
        501, "Upgrade: another protocol is not passed through", "ignored at other doors"
    )
    LENGTHS_DIFFER = (
        "lengths that differ", ANSWER_REFUSED, 400, "Content-Length: expected one number"
    )
    LENGTH_AND_CHUNKS = (
        "a length and chunks", ANSWER_REFUSED, 400,
        "expected one of Content-Length and Transfer-Encoding"
    )
    CODING = (
        "`chunked` twice, or another coding", ANSWER_REFUSED, 400,
        "Transfer-Encoding: expected chunked alone"
    )
    LENGTH = (
        "a sign, `0x` or `_` in a length, or a blank before or in it", ANSWER_REFUSED, 400,
        "Content-Length: expected one number"
    )
    SIZE = (
        "the same in a chunk's length", ANSWER_REFUSED, 400,
        "body: expected the length of a chunk"
    )
    CHUNK_END = (
        "a chunk that does not end where its length says", ANSWER_REFUSED, 400,
        "body: expected the end of a chunk where its length says"
    )
    FOLDED = (
        "a folded line", ANSWER_REFUSED, 400, "header: expected no line that begins with a blank"
    )
    CR_OR_NUL = (
        "CR without LF, or NUL", ANSWER_REFUSED, 400,
        "expected lines that end with CR and LF, and no control characters"
    )
    FIELD = "a line that is no `NAME: VALUE`", ANSWER_REFUSED, 400, "header: expected NAME: VALUE"
    FIRST_LINE = "another first line", ANSWER_REFUSED, 400, "expected METHOD TARGET HTTP/1.1"
    VERSION = "another version of HTTP", ANSWER_REFUSED, 505, "expected HTTP/1.1 or HTTP/1.0"
    LONG = (
        f"a head of more than {HEAD_LIMIT_BYTES // 1024} KiB or {FIELDS_MAX} lines",
        ANSWER_REFUSED, 431, f"expected a head of at most {HEAD_LIMIT_BYTES} bytes"
    )
    SWITCHED = (
        f"101, or more than {INTERIM_MAX} other interim answers", ANSWER_REFUSED, NOT_THERE,
        "it switched to another protocol without being asked"
    )
    UNDERLINE = (
        "a name with `_` in place of the `-` of a header that matters", AS_IT_IS, 400,
        "header: expected -"
    )
    EXPECTATION = (
        "an `Expect:` to anything but `100-continue`", NOT_THERE, 417,
        "Expect: expected 100-continue or nothing"
    )
    HOST = (
        "no `Host:` in HTTP/1.1, more than one, or one that is none", NOT_THERE, 400,
        "Host: expected once"
    )
    FRAGMENT = (
        "`#` in a target", NOT_THERE, 400,
        "target: expected no `#`: it and what follows are for the client alone"
    )
    TARGET = (
        "a target without `/` before it, `*` but of `OPTIONS`", NOT_THERE, 400,
        "expected a target that starts with /"
    )
    METHOD = (
        f"`CONNECT`, or a method of more than {METHOD_LENGTH_MAX} characters", NOT_THERE, 501,
        f"expected a method of at most {METHOD_LENGTH_MAX} characters"
    )
    # fmt: on

    def __init__(
        self,
        written: str,
        of_answer: int | str,
        of_request: int | str,
        expected: str = "",
        elsewhere: str = "",
    ) -> None:
        self.written = written
        self.of_answer = of_answer
        self.of_request = of_request
        self.expected = expected
        self.elsewhere = elsewhere
        """What becomes of a request that does not come to the door of a service, if it is
        something else."""


class Malformed(ValueError):
    """These bytes are no HTTP, or HTTP that others may read differently: by this rule, which may be
    told in other words."""

    def __init__(self, rule: Rule, told: str = "") -> None:
        super().__init__(told or rule.expected)
        self.rule = rule

    @property
    def status(self) -> int:
        """Returns the status by which such a request is refused."""
        status = self.rule.of_request
        return status if isinstance(status, int) else 400
