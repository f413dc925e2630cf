"""Large bodies whose length is known: read from the socket right to where they stay. What a body
belongs to is not known here.

A parser hands a body on in pieces: each is copied out of the loop's buffer, out of what was read,
and into the whole. For 4 MiB that took most of the processor time that a message costs.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import cast

from spillover.live.engine.reads import StandIn, take_over

LARGE_BYTES = 131_072
"""So much of a body must be missing: for less, pieces are as good."""

_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.restype = ctypes.py_object
_new_bytes.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_address_of = ctypes.pythonapi.PyBytes_AsString
_address_of.restype = ctypes.c_void_p
_address_of.argtypes = (ctypes.py_object,)


class LargeBody(StandIn):
    """Stands in for the protocol of a connection until a body of `size_bytes` that begins with
    `begun` is whole. Then `on_whole` is called with it, and the protocol is in its place again.

    It asks for the body's bytes only: what follows stays in the socket. All else that the
    transport tells, it passes on.
    """

    __slots__ = ("_before", "_body", "_left", "_looked_at_bytes", "_on_whole", "_transport")

    def __init__(
        self,
        owner: asyncio.Protocol,
        transport: asyncio.Transport,
        begun: bytes | bytearray,
        size_bytes: int,
        on_whole: Callable[[bytes], None],
    ) -> None:
        super().__init__(owner)
        self._before = transport.get_protocol()
        self._transport = transport
        self._on_whole = on_whole
        # Bytes that nobody has seen may be written, and need neither be cleared before nor copied
        # after (the C API says so). What is not whole is never shown to anybody.
        self._body = cast("bytes", _new_bytes(None, size_bytes))
        address = _address_of(self._body)
        whole = memoryview((ctypes.c_char * size_bytes).from_address(address)).cast("B")
        whole[: len(begun)] = begun
        self._left = whole[len(begun) :]
        self._looked_at_bytes = len(self._left)
        take_over(transport, self)

    def came_bytes(self) -> int:
        """Returns how much of it has come since this was asked last."""
        before, self._looked_at_bytes = self._looked_at_bytes, len(self._left)
        return before - self._looked_at_bytes

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint  # of a piece
        return self._left

    def buffer_updated(self, nbytes: int) -> None:
        self._left = self._left[nbytes:]
        if not self._left:
            take_over(self._transport, self._before)
            self._on_whole(self._body)
