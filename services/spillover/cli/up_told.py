"""`spillover up` suggests these calls, which work as they stand, pasted into a shell."""

from __future__ import annotations

import shlex
from pathlib import Path

from spillover.live.http1.bearer import TOKEN_VARIABLE
from spillover.model.trust import CA_VARIABLE


def invitation(*, has_tokens: bool) -> str:
    """Returns the words before the calls. Secrets of API tokens are not known here."""
    if not has_tokens:
        return "Try:"
    return f"Try, with the secret of an API token (roles submit and read) in {TOKEN_VARIABLE}:"


def commands(url: str, ca_file: Path | None) -> list[str]:
    """Returns the lines of our own commands, for a service at this url."""
    exported = [] if ca_file is None else [f"  export {CA_VARIABLE}={shlex.quote(str(ca_file))}"]
    return [*exported, f"  spillover status {url}"]


def curl(
    words: str, ca_file: Path | None, *, has_tokens: bool, header: str = "Authorization"
) -> str:
    """Returns the line of a call with these words; `header` is where API tokens are shown."""
    believing = [] if ca_file is None else [f"--cacert {shlex.quote(str(ca_file))}"]
    showing = [f'-H "{header}: Bearer ${TOKEN_VARIABLE}"'] if has_tokens else []
    return " ".join(["  curl", *believing, *showing, words])
