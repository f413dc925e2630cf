"""The address of a Redis as connections go by it: given, or in a file that is read again for each
of them, so that its password may change while the process runs. How it is read is in `address`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TypeAlias

from spillover.live.process.logs import Message
from spillover.live.redis.address import parse_address, place_of, read_again, read_url_file
from spillover.model.errors import InputError

RedisUrl: TypeAlias = "str | os.PathLike[str]"
"""An address, or the file whose first line is one, such as a mounted secret."""

LOOK_S = 10.0

_log = logging.getLogger(__name__)


class RedisAddress:
    """Where a Redis is, and as whom to call it. Raises InputError for what is no address."""

    def __init__(self, given: RedisUrl) -> None:
        # Absolute, since renewals run in another working directory; not resolved, so that links
        # are followed at each look.
        self.file = None if isinstance(given, str) else str(Path(given).absolute())
        self.url = str(given) if self.file is None else read_url_file(self.file)
        self.parts = parse_address(self.url)
        if self.file is not None:
            self.parts["file"] = self.file
        scheme, colon, rest = self.url.partition(":")
        self.url = f"{scheme.lower()}{colon}{rest}"  # the library takes no REDIS://
        self.place = place_of(self.url)
        self._told = ""
        """The last complaint about the file."""

    @classmethod
    def of(cls, given: RedisUrl | RedisAddress) -> RedisAddress:
        """Returns what was given, if it is one already."""
        return given if isinstance(given, RedisAddress) else cls(given)

    @property
    def credentials(self) -> tuple[str, ...]:
        """Returns user and password, or the password alone, as AUTH takes them; () without any."""
        user, password = str(self.parts["user"]), str(self.parts["password"])
        if user:
            return user, password
        return (password,) if password else ()

    def look(self) -> None:
        """Read the file again, if there is one. What cannot be used leaves all as it was, and is
        told once."""
        if self.file is None:
            return
        try:
            found = read_again(self.parts)
        except InputError as error:
            if error.expected != self._told:
                self._told = error.expected
                words = "the password of Redis stays as it was"
                _log.warning(Message(words, redis=self.place, reason=self._told))
            return
        self._told = ""
        if found != self.parts:
            self.parts = found
            words = "the password of Redis has changed: new connections use it"
            _log.info(Message(words, redis=self.place))

    def look_now(self) -> None:
        """Look as `look` does, and say again what is wrong."""
        self._told = ""
        self.look()

    async def watch(self) -> None:
        """Look now and then until cancelled: what is wrong with the file is told before a
        connection breaks that would need it."""
        while self.file is not None:
            await asyncio.sleep(LOOK_S)
            self.look()
