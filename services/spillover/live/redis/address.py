"""The address of a Redis, taken apart and checked, and read again where it stands in a file.

No part of an address is ever told but where it leads: a character that should have been encoded can
make any other part a piece of the password. Renewals use this without the library.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from spillover.model.errors import InputError

SECRET_MAX = 8192
"""Characters of an address in a file."""

URL_OPTIONS = ("db", "username", "password", "ssl_ca_certs", "ssl_cert_reqs")
"""The options that may stand behind a `?` of an address. Others would hold for some connections
only, or for none."""

_OF_THE_LIBRARY = frozenset(
    [
        "client_name",
        "decode_responses",
        "health_check_interval",
        "max_connections",
        "protocol",
        "retry",
        "retry_on_timeout",
        "socket_connect_timeout",
        "socket_keepalive",
        "socket_timeout",
        "timeout",
    ]
)
"""Options that may be told when they are refused: others may be the end of a password."""

CREDENTIALS = ("user", "password")
"""The parts of an address that are taken from a file that is read again. Another server would not
know the leases that are held."""

_EXPECTED = "expected redis://[user:password@]host:port/number, rediss:// or unix://"

_ENCODED = (
    f"{_EXPECTED}, where special characters of a user or password are percent-encoded: "
    "# is %23, / is %2F, ? is %3F, % is %25, @ is %40"
)

_UNFIT = re.compile(r"[\x00-\x20\x7f#\\]|%(?![0-9A-Fa-f]{2})")
"""Characters that stand in no address: blanks, the beginning of a fragment, a % that encodes
nothing."""


def parse_address(url: str, directory: str = "") -> dict[str, object]:
    """Returns the parts of redis://[user:password@]host:port/number, rediss:// the same with TLS,
    or unix://path?db=0, with options of `URL_OPTIONS`. A relative file of CAs lies in
    `directory`, or in the working directory where that is empty; renewals run in another one.
    Raises InputError."""
    try:
        parts = urlsplit(url)
    except ValueError:  # by a [ or a ]
        expected = _ENCODED if "@" in url else _EXPECTED
        raise InputError("redis", "url", expected) from None
    if parts.scheme not in {"redis", "rediss", "unix"}:
        raise InputError("redis", "url", _EXPECTED)
    is_path = parts.scheme == "unix"
    _check_encoded(url, parts, is_path=is_path)
    if is_path and not parts.path:
        raise InputError("redis", "url", _EXPECTED)
    given = parse_qs(parts.query, keep_blank_values=True)
    for name in given.keys() - set(URL_OPTIONS):
        got = f", got {name}" if name in _OF_THE_LIBRARY else ""
        raise InputError("redis", "url", f"expected of options only {', '.join(URL_OPTIONS)}{got}")
    options = {name: values[-1] for name, values in given.items()}
    try:
        number = _number("" if is_path else parts.path.strip("/"))
        number = _number(options.get("db", "")) or number
        port = parts.port or 6379
    except ValueError:
        raise InputError("redis", "url", _EXPECTED) from None
    ca = options.get("ssl_ca_certs", "")
    directory = directory or (str(Path.cwd()) if ca else "")
    return {
        "path": unquote(parts.path) if is_path else "",
        "host": parts.hostname or "localhost",
        "port": port,
        "number": number,
        "user": unquote(parts.username or "") or options.get("username", ""),
        "password": unquote(parts.password or "") or options.get("password", ""),
        "tls": parts.scheme == "rediss",
        "ca": ca and str(Path(directory) / ca),
        "directory": directory,
        "verify": options.get("ssl_cert_reqs", "required") != "none",
    }


def _check_encoded(url: str, parts: SplitResult, *, is_path: bool) -> None:
    """Raise InputError where a special character has split a user or password in two."""
    is_split = not is_path and "@" in parts.path  # by a /
    # By a ?; where there is an @ before it, or options that are known, it is none of theirs.
    names = parse_qs(parts.query, keep_blank_values=True).keys()
    is_split |= "@" in parts.query and not names <= set(URL_OPTIONS)
    host = parts.netloc.rpartition("@")
    # A password whose host was cut off; only a number can be a port without a host.
    is_split |= not host[1] and host[2][:1] == ":" and not host[2][1:].isdecimal()
    if is_split or _UNFIT.search(url):
        raise InputError("redis", "url", _ENCODED)


def _number(text: str) -> int:
    """0 for nothing. Raises ValueError for the name of a database: there are numbers alone."""
    if text and not (text.isascii() and text.isdecimal()):
        raise ValueError
    return int(text or 0)


def place_of(url: str) -> str:
    """Returns an address that `parse_address` takes as it may be shown: without user, password and
    options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def read_url_file(file: str) -> str:
    """Returns the first line of a file of secrets: what stands there is never told. Raises
    InputError."""
    try:
        with Path(file).open(encoding="utf-8") as opened:
            line = opened.readline(SECRET_MAX).strip()
    except UnicodeDecodeError:
        line = ""
    except OSError as error:
        expected = f"expected a file that can be read, got {file}: {error.strerror}"
        raise InputError("redis", "url", expected) from None
    if not line:
        expected = f"expected an address in the first line of {file}, got none"
        raise InputError("redis", "url", expected)
    return line


def read_again(parts: dict[str, object]) -> dict[str, object]:
    """Returns the parts of an address with the user and password that its `file` has now. Raises
    InputError where that has no address any more, or one that leads elsewhere."""
    file = str(parts["file"])
    found = parse_address(read_url_file(file), str(parts["directory"])) | {"file": file}
    if any(found[name] != parts[name] for name in found if name not in CREDENTIALS):
        expected = f"expected in {file} the Redis of the start: another one takes a restart"
        raise InputError("redis", "url", expected)
    return found
