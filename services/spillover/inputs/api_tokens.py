"""Files of API tokens: a YAML list of

    - name: shop-frontend
      sha256: 9f86d0...                        # of the secret, 64 hex digits
      tenant: shop                             # may be left out without the role submit
      roles: [submit, read]                    # submit | read | operate
      quota: {max_queued: 100, max_running: 20, requests_per_s: 50}       # of the whole tenant

Every fault of a file becomes one InputError that names the file, the entry and its line. No message
shows what stands in `sha256`: somebody may have put the secret itself there. A file that lacks its
end is refused, as far as that can be seen: whoever is in the rest of it would be shut out.
"""

from __future__ import annotations

import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from spillover.inputs.yaml_file import describe, describe_as_number, read_text, shown_path
from spillover.inputs.yaml_text import as_written, lines_of_entries, parse_yaml
from spillover.model.access import NO_QUOTA, TENANT, TENANT_EXPECTED, ApiToken, Quota, Role
from spillover.model.errors import InputError
from spillover.model.nearest import nearest

LIMIT_BYTES = 1_048_576
ENTRIES_MAX = 2_000
"""One file may have so many entries: it is read anew while a node runs."""

SECRET_PREFIX = "spillover_"  # noqa: S105 - what all secrets begin with

_FIELDS = ("name", "sha256", "tenant", "roles", "quota")
_COUNTS = ("max_queued", "max_running", "max_sessions")
_LIMITS = (*_COUNTS, "requests_per_s")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_COUNT_MAX = 10_000_000
_RATE_MAX = 1e6


def read_api_tokens(path: str) -> str:
    """Returns the text of the file. Raises InputError."""
    with suppress(OSError, ValueError):  # what is wrong then is told below
        mode = Path(path).stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            expected = "expected a file, which is read again and again, got a pipe or a device"
            raise InputError(shown_path(path), "", expected)
    missing = "expected a YAML file of API tokens, found none (spillover token new writes one)"
    return read_text(path, missing=missing, limit_bytes=LIMIT_BYTES)


def load_api_tokens(paths: Iterable[str]) -> tuple[ApiToken, ...]:
    """Returns the API tokens of all these files together. Raises InputError, always one line."""
    return parse_api_tokens({path: read_api_tokens(path) for path in paths})


def parse_api_tokens(texts: Mapping[str, str]) -> tuple[ApiToken, ...]:
    """Returns the API tokens in these texts, which are given by their files. Raises InputError."""
    found: list[ApiToken] = []
    names: set[str] = set()
    digests: set[bytes] = set()
    quotas: dict[str, tuple[str, Quota]] = {}
    for path, text in texts.items():
        source = shown_path(path)
        for number, entry in enumerate(_entries(source, text)):
            try:
                one = _read_entry(entry)
                _check_against(one, names, digests, quotas)
            except _FaultError as fault:
                line = lines_of_entries(text)[number]
                where = f"line {line}, entry {number + 1}"
                where = f"{where}, {fault.field}" if fault.field else where
                raise InputError(source, where, fault.expected) from None
            found.append(one)
    return tuple(found)


def new_secret() -> str:
    """Returns a secret that nobody guesses, in a form that scanners for secrets can find."""
    return SECRET_PREFIX + secrets.token_urlsafe(32)


def new_api_token(name: str, secret: str, tenant: str, roles: Iterable[Role]) -> ApiToken:
    """Returns the API token of this secret. Raises InputError for what no file may hold."""
    for option, value in (("--name", name), ("--tenant", tenant)):
        if (value or option == "--name") and not TENANT.fullmatch(value):
            raise InputError(option, "", f"expected {TENANT_EXPECTED}, got {describe(value)}")
    return ApiToken(name, sha256(secret.encode()).digest(), tenant, frozenset(roles))


def dump_api_token(token: ApiToken) -> str:
    """Returns the entry of a token in a file."""
    tenant = f"  tenant: {_quoted(token.tenant)}\n" if token.tenant else ""
    roles = ", ".join(role.value for role in Role if role in token.roles)
    digest = _quoted(token.sha256.hex())
    return f"- name: {_quoted(token.name)}\n  sha256: {digest}\n{tenant}  roles: [{roles}]\n"


def _quoted(text: str) -> str:
    """Returns a scalar that YAML takes for text, whatever it looks like."""
    return f'"{text}"'


class _FaultError(Exception):
    """A fault in one entry: the field, and what was expected there."""

    def __init__(self, field: str, expected: str) -> None:
        self.field = field
        self.expected = expected
        super().__init__(expected)


def _entries(source: str, text: str) -> list[Any]:
    try:
        document = parse_yaml(text)
    except ValueError as error:
        raise InputError(source, "", str(error)) from error
    if not isinstance(document, list):
        raise InputError(source, "", f"expected a list of API tokens, got {describe(document)}")
    if len(document) > ENTRIES_MAX:
        expected = f"expected at most {ENTRIES_MAX} API tokens, got {len(document)}"
        raise InputError(source, "", expected)
    if not text.endswith("\n"):
        expected = "expected a newline at the end, got none: the last line may have been cut"
        raise InputError(source, f"line {len(text.splitlines())}", expected)
    return document


def _read_entry(entry: object) -> ApiToken:
    fields = _mapping("", entry, _FIELDS)
    name = _label("name", fields)
    digest = as_written(fields.get("sha256"))
    if digest is None or not _SHA256.fullmatch(digest):
        # It is not shown.
        raise _FaultError("sha256", "expected the SHA-256 of the secret, 64 hex digits (in quotes)")
    roles = _roles(fields)
    tenant = _label("tenant", fields) if "tenant" in fields or Role.SUBMIT in roles else ""
    quota = _quota(fields["quota"]) if "quota" in fields else NO_QUOTA
    if quota is not NO_QUOTA and not tenant:
        raise _FaultError("quota", "expected a tenant beside it: quotas are of tenants")
    return ApiToken(name, bytes.fromhex(digest), tenant, roles, quota)


def _check_against(
    one: ApiToken, names: set[str], digests: set[bytes], quotas: dict[str, tuple[str, Quota]]
) -> None:
    """Raise an error where a token does not go with those before it."""
    if one.name in names:
        raise _FaultError("name", f"expected each name once, got {one.name!r} again")
    names.add(one.name)
    if one.sha256 in digests:
        raise _FaultError("sha256", "expected each secret once, got one again")
    digests.add(one.sha256)
    if one.tenant:
        first, quota = quotas.setdefault(one.tenant, (one.name, one.quota))
        if quota != one.quota:
            expected = f"expected the same as of {first}, which is of tenant {one.tenant} too"
            raise _FaultError("quota", expected)


def _mapping(field: str, value: object, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _FaultError(field, f"expected a mapping of fields, got {describe(value)}")
    for name in value:
        if name not in known:
            closest = nearest(str(name), known)
            hint = f"did you mean {closest}?" if closest else f"expected one of {', '.join(known)}"
            raise _FaultError(field, f"unknown field {describe(name)}, {hint}")
    return value


def _label(field: str, fields: Mapping[str, Any]) -> str:
    value = fields.get(field)
    text = as_written(value)
    if text is None or not TENANT.fullmatch(text):
        raise _FaultError(field, f"expected {TENANT_EXPECTED}, got {describe(value)}")
    return text


def _roles(fields: Mapping[str, Any]) -> frozenset[Role]:
    given = fields.get("roles")
    known = [role.value for role in Role]
    if not isinstance(given, list) or not given:
        expected = f"expected a list of roles ({', '.join(known)}), got {describe(given)}"
        raise _FaultError("roles", expected)
    for role in given:
        if role not in known:
            raise _FaultError("roles", f"expected {', '.join(known)}, got {describe(role)}")
    return frozenset(map(Role, given))


def _quota(given: object) -> Quota:
    limits = _mapping("quota", given, _LIMITS)
    counts = {limit: _count(limit, limits.get(limit)) for limit in _COUNTS}
    rate = limits.get("requests_per_s")
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if rate is not None and not (is_number and 0 < rate <= _RATE_MAX):
        expected = (
            f"expected a number above 0, at most {_RATE_MAX:.0f}, got {describe_as_number(rate)}"
        )
        raise _FaultError("quota.requests_per_s", expected)
    return Quota(requests_per_s=None if rate is None else float(rate), **counts)


def _count(limit: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _COUNT_MAX:
        expected = f"expected a whole number, 1 to {_COUNT_MAX}, got {describe_as_number(value)}"
        raise _FaultError(f"quota.{limit}", expected)
    return int(value)
