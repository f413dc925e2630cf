"""Both faces of the client are alike. Their types are looked at by `mypy` with `typed_example`."""

import inspect

from spillover import client


def test_both_clients_offer_the_same():
    """With the same arguments, and the same where they are not given."""

    def offered(of):
        return {
            name: [(one.name, one.default) for one in inspect.signature(member).parameters.values()]
            for name, member in vars(of).items()
            if not name.startswith("_") and callable(member)
        }

    assert offered(client.AsyncSpillover) == offered(client.Spillover)
    assert offered(client.AsyncJob) == offered(client.Job)
