"""Compiled engines, for statistics that need very many events. Needs the extra `sim`.

Whatever decides is a policy function, the same source as in the services, compiled from outside.
Importing anything from here where numba or numpy is missing raises InputError with one clear line:
import this before numpy.
"""

from spillover.model.extras import check_extra

check_extra("the fast engine", "sim", "numba", "numpy")
