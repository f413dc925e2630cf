"""Errors get through process pools, which pickle them, and through whatever copies them."""

from __future__ import annotations

import copy
import pickle

import pytest

from spillover.model.errors import Expired, Failed, InputError, Refused, Rejected, SpilloverError

ERRORS = [
    InputError("file.yaml", "clusters[0]", "expected a name"),
    Refused("full", "queue_full", 2.0),
    Rejected("bad", 422, "handler_rejected", body={"field": 1}, surely_did_not_run=False),
    Failed("down", "upstream_failed", upstream_status=500, upstream_body="sorry"),
    Expired("late", surely_did_not_run=True),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "travel",
    [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy],  # noqa: S301
)
def test_error_arrives_as_it_left(error: SpilloverError, travel):
    error.add_note("while a user's task ran")
    got = travel(error)
    assert (type(got), str(got), vars(got)) == (type(error), str(error), vars(error))
