"""What an upstream's answer becomes: a result, or a problem for the client."""

from __future__ import annotations

import msgspec

from spillover.live.http1 import Response
from spillover.live.workers.calls import RESULT_LIMIT_BYTES, Ended, one_line

EXCERPT_BYTES = 300
"""Of the body of an answer that says no, for the log."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_check = msgspec.json.Decoder(msgspec.Raw).decode


def read_answer(name: str, response: Response) -> Ended:
    """A 2xx answer as a result: JSON as it came, nothing as null, other types wrapped in base64.
    Anything else is a problem that begins with the upstream's `name`.
    """
    status, body = response.status, response.body
    if not 200 <= status <= 299:
        excerpt = " ".join(body[:EXCERPT_BYTES].decode("utf-8", "replace").split())
        problem = f"upstream {name} answered {status}"
        return Ended(problem=problem, details=f"{problem}: {excerpt}")
    if not body:
        return Ended(b"null")
    coding = response.headers.get(b"content-encoding", b"identity").strip().lower()
    if coding not in (b"", b"identity"):
        shown = coding.decode("latin-1")
        return Ended(problem=f"upstream {name} answered in the coding {shown}, unasked")
    content_type = response.headers.get(b"content-type", b"application/octet-stream").strip()
    if not _is_json(content_type):
        return _wrapped(name, content_type, body)
    body = body.removeprefix(BYTE_ORDER_MARK)
    try:
        if not body.isascii():
            body.decode()  # the JSON decoder does not look at what it passes over
        _check(body)
    except (ValueError, RecursionError) as error:
        return Ended(problem=f"upstream {name} answered what is not valid JSON: {one_line(error)}")
    return Ended(body)


def _is_json(content_type: bytes) -> bool:
    media_type = content_type.partition(b";")[0].strip().lower()
    return media_type == b"application/json" or media_type.endswith(b"+json")


def _wrapped(name: str, content_type: bytes, body: bytes) -> Ended:
    """Bytes are base64 in msgspec's JSON."""
    shown = content_type.decode("latin-1")
    result = msgspec.json.encode({"content_type": shown, "body_base64": body})
    if len(result) > RESULT_LIMIT_BYTES:
        limit = f"{RESULT_LIMIT_BYTES} bytes of JSON"
        return Ended(problem=f"upstream {name} answered {shown}, which takes more than {limit}")
    return Ended(result)
