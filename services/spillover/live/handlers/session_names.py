"""The session that a request belongs to, as a number, by the part of it that the configuration
names. A request that has no such part, or one that cannot be read, belongs to none.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from spillover.live.handlers.json_fields import Body, JsonFields
from spillover.model.errors import UNREADABLE
from spillover.model.passed import Fields
from spillover.model.session_source import COOKIE, HEADER, JSON, SessionSource

NONE = 0
"""The number of no session."""
PROMPT_BYTES = 1_024
"""With `prefix`, what of a prompt that is one text names its session."""
MESSAGES_MAX = 64
"""With `prefix`, the number of messages among which one of the user is looked for."""
MARKS_MAX = 4_096
"""The number of strings and brackets at which a conversation is read no further: whoever sends
millions must not keep the node from its other work. Why: some hundred times what usual messages up
to the first one of the user have; it takes a millisecond."""
NOBODY = (b"", b'""', b"null")
"""What clients without a session send in its place."""

_MARK = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*+"|[\[\]{}"]', re.DOTALL)
"""A string of valid JSON, a bracket, or the quote of a string that is cut off."""
LOOKED_AT_BYTES = 1 << 20
"""With `prefix`, the bytes of `messages` that are looked at: more would take too long."""


class _Message(msgspec.Struct):
    role: str = ""


class _Conversation(msgspec.Struct):
    """What requests to the usual APIs of language models say, as far as it matters here."""

    messages: msgspec.Raw = msgspec.Raw(b"")
    prompt: msgspec.Raw = msgspec.Raw(b"")


class SessionNames:
    """Names are hashed with a key of this process, so that nobody can choose numbers that push
    others out."""

    def __init__(self, source: SessionSource) -> None:
        self._source = source
        self._key = secrets.token_bytes(16)
        self._name = source.name.lower().encode()
        self._fields = JsonFields([source.name])
        self._conversation = msgspec.json.Decoder(_Conversation)
        self._message = msgspec.json.Decoder(_Message)

    @property
    def reads_fields(self) -> bool:
        """Returns whether it looks at fields of the head."""
        return not self._source.is_in_body

    def of(self, fields: Fields, body: Body) -> int:
        """Returns the session of a request with these fields and this body."""
        kind = self._source.kind
        if kind == HEADER:
            told: Sequence[bytes | memoryview] = [
                value for name, value in fields if name.lower() == self._name
            ]
        elif kind == COOKIE:
            told = self._cookies(fields)
        else:
            try:
                told = self._field(body) if kind == JSON else self._prefix(body)
            except UNREADABLE:
                return NONE
        return self._number(told)

    def _cookies(self, fields: Fields) -> Sequence[bytes]:
        wanted = self._source.name.encode()
        for name, value in fields:
            if name.lower() == b"cookie":
                for cookie in value.split(b";"):
                    key, _, told = cookie.strip().partition(b"=")
                    if key == wanted:
                        return [told]
        return []

    def _field(self, body: Body) -> Sequence[bytes]:
        return self._fields.of(body)

    def _prefix(self, body: Body) -> Sequence[bytes | memoryview]:
        """Returns the messages up to the first one of the user: a conversation has them in all its
        turns."""
        conversation = self._conversation.decode(body)
        messages, prompt = memoryview(conversation.messages), memoryview(conversation.prompt)
        if bytes(messages[:1]) != b"[" or not (end := self._beginning(messages)):
            return [bytes(prompt[:PROMPT_BYTES])]
        return [messages[:end]]

    def _beginning(self, messages: memoryview) -> int:
        """Returns where the first message of the user ends in this list, or where the list is read
        no further; 0 where it has no message."""
        depth = began = end = count = 0
        for marks, mark in enumerate(_MARK.finditer(messages[:LOOKED_AT_BYTES])):
            at = mark.start()
            char = messages[at]
            if marks >= MARKS_MAX or mark[0] == b'"':
                return at
            if char in b"[{":
                depth += 1
                if depth == 2:
                    began = at
            elif char in b"]}":
                depth -= 1
                if depth == 1:
                    end, count = mark.end(), count + 1
                    role = self._message.decode(messages[began:end]).role
                    if role == "user" or count >= MESSAGES_MAX:
                        return end
        return end

    def _number(self, told: Iterable[bytes | memoryview]) -> int:
        digest, is_empty = blake2b(digest_size=8, key=self._key), True
        for part in told:
            is_empty = is_empty and part in NOBODY
            digest.update(part)
        return NONE if is_empty else int.from_bytes(digest.digest()) or 1
