"""The API token by which a testbed looks at its own nodes, where these have API tokens."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from spillover.inputs.api_tokens import dump_api_token, new_api_token, new_secret
from spillover.model.access import Role

FILE = "up-tokens.yaml"


@dataclass(frozen=True, slots=True)
class OwnToken:
    """The file that nodes read, and the header to show them."""

    file: Path
    shown: dict[str, str]


def make_own_token(directory: Path) -> OwnToken:
    """Returns one that may look, and no more. Its secret is in memory alone."""
    secret, file = new_secret(), directory / FILE
    token = new_api_token(f"up-{uuid.uuid4().hex}", secret, "", [Role.READ])
    file.write_text(dump_api_token(token), encoding="utf-8")
    return OwnToken(file, {"authorization": f"Bearer {secret}"})
