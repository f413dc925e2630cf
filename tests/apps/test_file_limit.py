"""How many files may be open: raised as far as it goes, and told only where it can bite."""

import logging
import resource

import pytest

from spillover.apps.node.file_limit import FILES_MIN, FileWatch, raise_file_limit
from spillover.core.overflow.settings import NodeSettings

DEFAULT = NodeSettings(cluster="a", servers=1, policy="paper")


@pytest.mark.parametrize(
    ("soft", "hard", "queue_limit", "allowed", "is_told"),
    [
        (256, FILES_MIN, DEFAULT.queue_limit, FILES_MIN, False),
        (256, FILES_MIN - 1, DEFAULT.queue_limit, FILES_MIN - 1, True),
        (256, 2048, 100, None, False),
        (1024, 1024, 100, 1024, True),
    ],
)
def test_a_limit_is_told_where_a_burst_would_reach_it(
    monkeypatch, caplog, soft, hard, queue_limit, allowed, is_told
):
    """The queue's limit is mostly just the default: that more could be wanted is no news."""
    limits = [soft, hard]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.__setitem__(0, given[0]))
    settings = NodeSettings(cluster="a", servers=1, policy="paper", queue_limit=queue_limit)
    assert raise_file_limit(settings) == allowed
    assert limits == [hard if allowed else 3 * queue_limit + 1024, hard]
    told = [(one.levelname, one.msg.fields["allowed"]) for one in caplog.records]
    assert told == ([("WARNING", allowed)] if is_told else [])


def test_connections_that_come_near_the_limit_are_told_once_until_they_are_few_again(caplog):
    counts = [79, 80, 99, 60, 80, 59, 80]
    watch = FileWatch(100, lambda: counts.pop(0))
    with caplog.at_level(logging.WARNING):
        while counts:
            watch.look()
    assert [one.msg.fields["connections"] for one in caplog.records] == [80, 80]
