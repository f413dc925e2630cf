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
    """The file that services read, and the secret to show them."""

    file: Path
    secret: str

    @property
    def shown(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secret}"}


def make_own_token(directory: Path, *, tenant: str = "") -> OwnToken:
    """Returns one that may look, and no more, or may submit for this tenant. Its secret is in
    memory alone."""
    secret, file = new_secret(), directory / FILE
    roles = [Role.READ, *([Role.SUBMIT] if tenant else [])]
    token = new_api_token(f"up-{uuid.uuid4().hex}", secret, tenant, roles)
    file.write_text(dump_api_token(token), encoding="utf-8")
    return OwnToken(file, secret)
