"""One chunk of a body in chunks, as it mostly comes where an answer is a stream: by itself. What
else may come of such a body is for the readers of connections.
"""

from __future__ import annotations

LENGTH_DIGITS_MAX = 15


def one_chunk(data: bytes) -> bytes:
    """Returns what is in a chunk, if that is all there is, with its length written as most write
    it; nothing for anything else, and for the last one."""
    end = data.find(b"\r\n", 1, LENGTH_DIGITS_MAX + 2)
    size_bytes = len(data) - end - 4
    if end < 0 or size_bytes <= 0 or not data.startswith(b"%x\r\n" % size_bytes):
        return b""
    return data[end + 2 : -2] if data.endswith(b"\r\n") else b""
