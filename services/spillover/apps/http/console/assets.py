"""The files of the page, and the headers that they go with. Nothing is made here: what is sent is
what lies in `static/`, but for the place of the files in the page.

Files are found under a digest of them all, so that browsers may keep them for ever, and a newer
version never mixes with an older one. Everything is relative to the page: it works behind a prefix.
"""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

STATIC = Path(__file__).parent / "static"

PAGE = "index.html"
PLACE, TITLE = "{{assets}}", "{{title}}"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
"""The policy of content: only this service's own files, no scripts or styles between the lines, no
frames around it, and no text that becomes HTML."""

SAFE_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

KEPT = "public, max-age=31536000, immutable"
ASKED_AGAIN = "no-cache"

_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, as it is sent."""

    content: bytes
    content_type: str


@cache
def assets() -> dict[str, Asset]:
    """Returns all files but the page, by their path in `static/`."""
    return {
        path.relative_to(STATIC).as_posix(): Asset(path.read_bytes(), _type_of(path))
        for path in sorted(STATIC.rglob("*"))
        if path.is_file() and path.name != PAGE
    }


@cache
def digest() -> str:
    """Returns the digest of all files, which a page and its files share."""
    found = hashlib.sha256((STATIC / PAGE).read_bytes())
    for name, asset in assets().items():
        found.update(name.encode() + b"\0" + asset.content)
    return found.hexdigest()[:16]


@cache
def page(title: str) -> bytes:
    """Returns the page, with this title until it knows better."""
    text = (STATIC / PAGE).read_text(encoding="utf-8")
    place = f"console/assets/{digest()}"
    return text.replace(PLACE, place).replace(TITLE, escape(title)).encode()


def _type_of(path: Path) -> str:
    guessed = mimetypes.guess_type(path.name)[0] or "text/plain"
    return _TYPES.get(path.suffix, guessed)
