"""Packages that only some commands need, and the one line that says how to get them. The extras are
declared in pyproject.toml. What is done with the packages is not known here.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from urllib.parse import unquote

from spillover.model.errors import InputError

_FILE = "file://"


def check_extra(what: str, extra: str, *packages: str) -> None:
    """Raise InputError, naming the first of the packages that is not installed."""
    for package in packages:
        if not is_installed(package):
            raise missing_extra(what, extra, package)


def missing_extra(what: str, extra: str, package: str) -> InputError:
    """Returns the error, to be raised, where `what` needs a package of `extra` that is not
    installed."""
    return InputError(package, "", f"{what} needs {how_to_get(extra)}")


def how_to_get(extra: str) -> str:
    """Returns the extra, and the command that installs it where this runs from: in a checkout its
    own setup, since packages of the index need not have its version; elsewhere pip's."""
    anywhere = f"pip install 'spillover[{extra}]'"
    checkout = _checkout()
    if checkout is None:
        return f"the extra `{extra}`: {anywhere}"
    # The .venv that `make` has made holds the locked packages, and not always pip.
    setup = f"{checkout}/deploy/setup_venv.sh"
    if sys.prefix != f"{checkout}/.venv":
        setup = f"{sys.executable} -m pip install -e '{checkout}[{extra}]'"
    return f"the extra `{extra}`: {setup} (outside a checkout: {anywhere})"


def is_installed(package: str) -> bool:
    """Returns whether it can be imported."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _checkout() -> str | None:
    """Returns the directory that this is installed from, editable."""
    try:
        told = json.loads(distribution("spillover").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    editable = told.get("dir_info", {}).get("editable", False)
    url = str(told.get("url", ""))
    return unquote(url.removeprefix(_FILE)) if editable and url.startswith(_FILE) else None
