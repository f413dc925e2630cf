"""API tokens for tests: who has them, and how they are shown."""

from spillover.apps.http.access import Access, ApiTokens
from spillover.inputs.api_tokens import dump_api_token, new_api_token
from spillover.model.access import Role

SECRETS = {
    "submitter": "secret-of-submitter",
    "reader": "secret-of-reader",
    "operator": "secret-of-operator",
    "other": "secret-of-another-tenant",
}

HOLDERS = (
    ("submitter", "shop", (Role.SUBMIT,)),
    ("reader", "shop", (Role.READ,)),
    ("operator", "", (Role.OPERATE,)),
    ("other", "bank", (Role.SUBMIT, Role.READ)),
)


def let_in(file, name, tenant, *roles):
    """Returns the secret of an API token that stands in the file from now on."""
    secret = f"the secret of {name}".replace(" ", "-")
    with file.open("a") as tokens:
        tokens.write(dump_api_token(new_api_token(name, secret, tenant, roles)))
    return secret


def bearer(secret):
    return [(b"authorization", f"Bearer {secret}".encode())]


def shown_by(holder):
    """What they show; nothing if nobody."""
    return [] if holder is None else bearer(SECRETS.get(holder, holder))


def tokens_of_tests():
    return [new_api_token(name, SECRETS[name], *rest) for name, *rest in HOLDERS]


def access_of_tests():
    return Access(ApiTokens(tokens_of_tests()))
