"""Files of certificates and keys in PEM: read, and told in one line where they cannot be any.

What stands in them is in `material`, for which OpenSSL reads them again (`contexts`).
"""

from __future__ import annotations

import codecs
import os
import stat

from spillover.model.errors import InputError

FILE_BYTES_MAX = 1024 * 1024
"""The largest file of a certificate, a key, or the CAs of a federation. Longer ones are something
else."""

BUNDLE_BYTES_MAX = 16 * FILE_BYTES_MAX
"""The largest file of CAs that come from elsewhere, such as a system's."""

_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_pem(path: str, most_bytes: int = FILE_BYTES_MAX) -> bytes:
    """Returns what stands in the file. Raises InputError where it is no file with anything in it,
    or begins as editors of Windows have it: OpenSSL skips a line that does not begin with -----,
    and the first certificate with it."""
    try:
        # A pipe that nobody writes to must not hold anything up.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise InputError(path, "", "expected a file, got something else")
            content = opened.read(most_bytes + 1)
    except IsADirectoryError:
        raise InputError(path, "", "expected a file, got a directory") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        shown = path.encode("unicode_escape").decode()  # a NUL is no text for a terminal
        raise InputError(shown, "", f"expected a file that can be read ({reason})") from None
    if len(content) > most_bytes:
        raise InputError(path, "", f"expected a file of at most {most_bytes} bytes")
    if not content:
        raise InputError(path, "", "expected PEM, got an empty file")
    if content.startswith(_MARKS):
        expected = "expected PEM that begins with -----BEGIN, got a byte order mark (BOM) before it"
        raise InputError(path, "", f"{expected}: save it as plain ASCII")
    return content


def what_else(content: bytes) -> str:
    """Returns words for what stands in a file where something else was expected."""
    if b"PRIVATE KEY-----" in content:
        return "a private key"
    return "a certificate" if b"BEGIN CERTIFICATE-----" in content else "something else"
