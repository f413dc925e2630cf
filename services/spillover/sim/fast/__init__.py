"""Compiled engines, for statistics that need very many events. Needs the extra `sim`.

Whatever decides is a policy function, the same source as in the services, compiled from outside.
Importing anything from here where numba or numpy is missing raises InputError with one clear line:
import this before numpy.
"""

from importlib.util import find_spec

from spillover.model.errors import InputError

if any(find_spec(name) is None for name in ("numba", "numpy")):
    _EXPECTED = "the fast engine needs the extra `sim`: pip install 'spillover[sim]'"
    raise InputError("numba", "", _EXPECTED)
