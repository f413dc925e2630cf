"""Compiled engines, for statistics that need very many events. Needs the extra `sim`.

Whatever decides is a policy function, the same source as in the services, compiled from outside.
Importing anything from here where numba is missing raises InputError with one clear line: look at
nothing else first, since numpy is then missing too.
"""

from importlib.util import find_spec

from spillover.model.errors import InputError

if find_spec("numba") is None:
    _EXPECTED = "the fast engine needs the extra `sim`: pip install 'spillover[sim]'"
    raise InputError("numba", "", _EXPECTED)
