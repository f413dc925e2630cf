"""The workers of a Dask cluster: which one gets a request, and what is said of their slots."""

import importlib.util
import pickle
from types import SimpleNamespace

import pytest

from spillover.live.handlers.dask import call
from spillover.live.handlers.dask.pool import PoolWorker, Shipped, UsableWorkers


@pytest.fixture
def pool():
    made = UsableWorkers()
    for address, slots in (("w1", 1), ("w2", 3), ("w3", 2)):
        made.add(PoolWorker(address, slots, "token"))
    return made


def test_the_worker_with_the_most_free_slots_is_next(pool):
    chosen = []
    while (worker := pool.free()) is not None:
        worker.running += 1
        chosen.append(worker.address)
    assert chosen == ["w2", "w2", "w3", "w1", "w2", "w3"]
    gone = pool.remove("w2")
    assert gone.address == "w2"
    assert pool.remove("w2") is None
    assert pool.free() is None
    assert (pool.slots, pool.addresses) == (3, {"w1", "w3"})
    gone.running = 0
    pool.add(gone)
    assert pool.free() is gone
    pool.resize("w2", 1)
    pool.resize("w9", 7)
    assert (pool.slots, pool.free()) == (4, gone)
    gone.running = 1
    assert pool.free() is None


def test_functions_travel_whole(require):
    """No worker has their module. Here they are what they are, and no other module is changed."""
    require(importlib.util.find_spec("cloudpickle"), "the extra `dask`")
    import cloudpickle

    shipped = Shipped(call.stop)
    there = pickle.loads(pickle.dumps(shipped))  # noqa: S301 - made here
    assert there.__globals__ is not call.stop.__globals__
    assert (there.__name__, shipped.__name__) == ("stop", "stop")
    assert shipped("k", dask_worker=SimpleNamespace()) is False
    assert call.__name__ not in cloudpickle.list_registry_pickle_by_value()
