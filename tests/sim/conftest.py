"""What simulations need that are compiled: where Numba is missing they are skipped."""

import pytest


@pytest.fixture(scope="session")
def fast(numba):
    """The compiled engine."""
    from spillover.sim.fast.overflow import run as overflow

    return overflow
