"""`spillover token new`: make an API token, whose secret is shown once and kept nowhere."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from spillover.commandline.parsing import add_command, add_json
from spillover.inputs.api_tokens import (
    dump_api_token,
    new_api_token,
    new_secret,
    parse_api_tokens,
    read_api_tokens,
)
from spillover.inputs.yaml_file import shown_path
from spillover.model.access import ApiToken, Role
from spillover.model.errors import InputError, RunError

MODE = 0o600


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    new = add_command(
        commands,
        "new",
        "make an API token: its secret on stdout, its entry for the file of `--tokens`",
    )
    new.add_argument(
        "--name", required=True, metavar="N",
        help="the name of whoever has the token, for people; no other token of the file has it",
    )  # fmt: skip
    new.add_argument(
        "--tenant", default="", metavar="T",
        help="the tenant whose requests it makes: names, answers and quotas are a tenant's "
        "(needed with --role submit)",
    )  # fmt: skip
    new.add_argument(
        "--role", choices=[role.value for role in Role], action="append", required=True,
        metavar="ROLE",
        help="submit (make requests), read (see what happens) or operate (change it, and see); "
        "may be repeated",
    )  # fmt: skip
    new.add_argument(
        "--append",
        metavar="FILE",
        help="add the entry to this file, which may be new (default: show it)",
    )
    add_json(new, "print secret and entry as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    if Role.SUBMIT in options.role and not options.tenant:
        raise InputError("--tenant", "", "expected the id of a tenant, with --role submit")
    secret = new_secret()
    token = new_api_token(options.name, secret, options.tenant, map(Role, options.role))
    entry = dump_api_token(token)
    if options.append is not None:
        _append(options.append, entry)
    if options.json:
        print(json.dumps({"secret": secret, **_as_json(token)}))
        return 0
    print(secret)
    if options.append is None:
        print(f"\nIts entry in the file of --tokens:\n\n{entry}", file=sys.stderr)
    print("The secret is shown only now: keep it where its user can read it.", file=sys.stderr)
    return 0


def _as_json(token: ApiToken) -> dict[str, object]:
    roles = [role.value for role in Role if role in token.roles]
    told = {"name": token.name, "sha256": token.sha256.hex(), "tenant": token.tenant}
    return {**told, "roles": roles}


def _append(path: str, entry: str) -> None:
    """Add the entry to the file, if the file is right with it."""
    before = read_api_tokens(path) if Path(path).exists() else ""
    between = "" if not before or before.endswith("\n") else "\n"
    parse_api_tokens({path: before + between + entry})
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, MODE)
        with open(descriptor, "ab") as file:  # noqa: PTH123 - a descriptor
            file.write((between + entry).encode())
    except OSError as error:
        raise RunError(f"{shown_path(path)}: cannot be written: {error.strerror}") from None
