"""Options that give a service its certificate, and the CAs that it believes. The commands know
which of them they need."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from spillover.model.errors import InputError
from spillover.model.extras import check_extra

if TYPE_CHECKING:
    from spillover.live.tls.material import TlsFiles

CERT, KEY, CA = "--tls-cert", "--tls-key", "--tls-ca"

VARIABLES = {CERT: "SPILLOVER_TLS_CERT", KEY: "SPILLOVER_TLS_KEY", CA: "SPILLOVER_TLS_CA"}
"""The variables of the environment that stand in for options that are not given."""


def add_tls_options(parser: argparse.ArgumentParser, cert: str, ca: str | None) -> None:
    """Declare them. `cert` and `ca` are what help says of these two; None: there are no CAs."""
    told = {CERT: cert, KEY: "its private key", **({} if ca is None else {CA: ca})}
    for option, what in told.items():
        parser.add_argument(option, metavar="FILE", help=f"{what} (or {VARIABLES[option]})")


def given_files(options: argparse.Namespace) -> dict[str, str | None]:
    """Returns the file that each of them names, or else its variable."""
    fields = {option: option[2:].replace("-", "_") for option in VARIABLES}
    return {
        option: getattr(options, field) or os.environ.get(VARIABLES[option]) or None
        for option, field in fields.items()
        if hasattr(options, field)
    }


def tls_files(options: argparse.Namespace, *, wants_ca: bool = False) -> TlsFiles | None:
    """Returns those of a service that speaks TLS where it has a certificate; None without. Raises
    InputError where some are missing."""
    given = given_files(options)
    if not any(given.values()):
        return None
    for option in (CERT, KEY, *([CA] if wants_ca else [])):
        if given[option] is None:
            others = ", ".join(one for one, file in given.items() if file is not None)
            expected = f"expected a file (or {VARIABLES[option]}) along with {others}"
            raise InputError(option, "", expected)
    check_extra(CERT, "tls", "cryptography")
    from spillover.live.tls.material import TlsFiles

    return TlsFiles(cert=given[CERT] or "", key=given[KEY] or "", ca=given.get(CA))
