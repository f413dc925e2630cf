"""The one place where functions are compiled: what kernels and policies share of numba is here.

    from spillover.sim.fast.compile import compiled

    @compiled
    def kernel(...): ...                       # may call policy functions by their plain names
    choose = compiled(paper.choose)            # or compile a policy function by itself

No kernel and no rule of any model belongs here. That numba is installed the package has checked.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import config as numba_config
from numba.extending import register_jitable

F = TypeVar("F", bound=Callable[..., Any])

config: Any = numba_config  # its settings are made at run time
_PACKAGE = "spillover."
_known_to_numba: set[FunctionType] = set()


def compiled(function: F) -> F:
    """Returns the function, compiled at its first call and kept on disk for later processes.

    The plain functions of Spillover that it calls, and those that they call, are made known to the
    compiler. What is kept is used again only while the source of all of them is the same: numba by
    itself looks at the file of the outermost function alone.
    """
    return _kept(function)


def kernel(function: F) -> F:
    """Returns a function compiled as `compiled` does it, for what works on the arrays that it is
    given and makes none. References are not counted then, which costs several times what a short
    event does. Parts of a kernel are `inner` or `inlined`.

    References are not counted then, which costs several times what a short event does. Parts of a
    kernel are `inner` or `inlined`.
    """
    return _kept(function, _nrt=False)


def inner(function: F) -> F:
    """Returns a part of a `kernel`, which is all that may call it: quicker to compile, and kept
    there."""
    _introduce_callees(_plain(function))
    return cast("F", njit(**_INNER)(function))


def inlined(function: F) -> F:
    """Returns a part of a kernel as `inner` does, always expanded where it is called: for what is
    short and called often."""
    _introduce_callees(_plain(function))
    return cast("F", njit(forceinline=True, **_INNER)(function))


_INNER: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}


def _kept(function: F, **options: Any) -> F:
    plain = _plain(function)
    callees = _introduce_callees(plain)
    directory = _cache_directory(_digest(plain, callees))
    with _caching_in(directory or ""):
        return cast("F", njit(cache=directory is not None, **options)(function))


def _introduce_callees(function: FunctionType) -> list[Any]:
    """Make the plain functions that are called known to numba; all that are called."""
    callees = _callees(function)
    for callee in callees:
        if isinstance(callee, FunctionType) and callee not in _known_to_numba:
            _known_to_numba.add(callee)
            register_jitable(callee)
    return callees


def _plain(function: Any) -> FunctionType:
    """The Python function behind a compiled one, or the function itself."""
    plain: FunctionType = getattr(function, "py_func", function)
    return plain


def _callees(function: FunctionType) -> list[Any]:
    """The functions of Spillover that are reached from this one, compiled or plain.

    Only what is defined above the function, or imported, is seen: decorators run at the import.
    """
    found: dict[Any, None] = {}
    rest = [function]
    while rest:
        for value in _values_read(rest.pop()):
            plain: Any = getattr(value, "py_func", value)
            if isinstance(plain, FunctionType) and plain.__module__.startswith(_PACKAGE):
                if value not in found:
                    rest.append(plain)
                found[value] = None
    return list(found)


def _values_read(function: FunctionType) -> list[Any]:
    """The globals and the closed-over values that a function names, in a fixed order."""
    code = function.__code__
    scope = function.__globals__
    cells = function.__closure__ or ()
    return [scope[n] for n in code.co_names if n in scope] + [c.cell_contents for c in cells]


def _digest(function: FunctionType, callees: list[Any]) -> str:
    """Returns a digest of all that machine code is made from: source files, constants that are
    read, and which function is called where one of several could be, as from a registry."""
    functions = [function, *(_plain(callee) for callee in callees)]
    digest = hashlib.sha256()
    paths = {__file__, *(f.__code__.co_filename for f in functions)}
    for source in sorted(Path(path).read_bytes() for path in paths):  # wherever these lie
        digest.update(source)
    for reader in functions:
        digest.update(f"{reader.__module__}.{reader.__qualname__}".encode())
        constants = [v for v in _values_read(reader) if isinstance(v, int | float | str | tuple)]
        digest.update(repr(constants).encode())
    return digest.hexdigest()[:16]


def _cache_directory(digest: str) -> str | None:
    """Where the machine code of this source is kept; None where nothing can be written."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        base = config.CACHE_DIR or Path(home).expanduser() / "spillover" / "kernels"
        directory = Path(base) / digest
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a read-only or unknown home
        return None
    return str(directory) if os.access(directory, os.W_OK) else None


class Kept:
    """Where numba keeps the machine code of one function: by the digest alone.

    Numba's own locators add the path of the source, so that each checkout would compile anew.
    """

    def __init__(self, function: FunctionType, directory: str) -> None:
        self._directory = directory
        self._py_file = function.__code__.co_filename  # numba's warnings name it
        self._first_line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: FunctionType, _: str) -> Kept | None:
        return cls(function, config.CACHE_DIR) if config.CACHE_DIR else None

    def ensure_cache_path(self) -> None:
        Path(self._directory).mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        return self._directory

    def get_source_stamp(self) -> str:
        return Path(self._directory).name

    def get_disambiguator(self) -> str:
        return str(self._first_line)


@contextmanager
def _caching_in(directory: str) -> Iterator[None]:
    """Numba takes where to look from its configuration at the moment of decoration. One before
    0.62 knows no locators but its own, and works all the same."""
    before = config.CACHE_DIR, getattr(config, "CACHE_LOCATOR_CLASSES", "")
    config.CACHE_DIR = directory
    config.CACHE_LOCATOR_CLASSES = f"{__name__}.{Kept.__name__}"
    try:
        yield
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before
