"""Random histories of configurations that change, each checked after every event; and what the
checker says of sites that do something wrong.

`SPILLOVER_SOAK_S` in the environment makes the long test go on for about so long: 100 000 histories
take a core half an hour. SPILLOVER_HISTORIES is how many it plays at least, and
SPILLOVER_HISTORIES_FIRST the seed of the first, to go on where another soak ended.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import replace

import pytest

from spillover.core.membership import events as mev
from spillover.core.membership.configuration import ConfigurationMachine
from spillover.core.overflow import events as ev
from spillover.core.overflow.parting import Parting
from spillover.model.configuration import Stamp
from spillover.sim.overflow.checkers import Broken
from support.histories.configurations import History
from support.histories.configured_site import Site

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "0"))
SHORT = 30
FIRST = int(os.environ.get("SPILLOVER_HISTORIES_FIRST", SHORT))
LONG = int(os.environ.get("SPILLOVER_HISTORIES", "150"))
NOTICED_WITHIN = 100
"""Histories."""

HAPPENS = {
    *("add", "remove", "add_link", "remove_link", "settings", "taken"),
    *("started", "ended", "died", "restarted", "cut"),
}


def play(seeds, soak_s=0.0):
    """The histories of these seeds, and on as long as there is time. They are eventful, or they
    would prove little."""
    happened, requests, versions = Counter(), Counter(), Counter()
    seed, until_s = seeds.start, time.monotonic() + soak_s
    while seed < seeds.stop or time.monotonic() < until_s:
        told = History(seed).play()
        happened += told.happened
        requests += told.requests
        versions[told.versions] += 1
        seed += 1
    count = seed - seeds.start
    told = f"{count} histories from seed {seeds.start}"
    print(told, dict(happened), dict(requests), dict(versions))  # noqa: T201
    assert happened.keys() >= HAPPENS
    assert min(happened[kind] for kind in HAPPENS) > 0.1 * count
    assert requests["forwarded"] > 2 * count
    assert requests["done"] > 10 * count
    assert versions[1] > 0.95 * count


@pytest.mark.slow
def test_nothing_breaks_in_short():
    """As many as a check has time for."""
    play(range(SHORT))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_nothing_breaks():
    """One configuration at the end, its links at both ends, nothing lost by a change."""
    play(range(FIRST, FIRST + LONG), SOAK_S)


def test_the_same_seed_gives_the_same_history():
    """What is told of a broken one can be looked at again."""
    assert History(7).play() == History(7).play()
    assert History(7).play() != History(8).play()


# --- sites that do something wrong ----------------------------------------------------------------


class First(Site):
    """Of two configurations of one version, keeps the one that it heard of first."""

    def _configure(self, event):
        if isinstance(event, mev.Received):
            current, other = self.configuration.current.stamp, event.configuration.stamp
            if other.version == current.version:
                event.configuration = self.configuration.current
        super()._configure(event)


class HastyParting(Parting):
    """Nothing is waited for."""

    def over(self, node, _):
        return [handle for handle in node.neighbors.by_handle if handle in self]


class RudeParting(Parting):
    """Nothing is waited for where the cluster itself is removed."""

    def over(self, node, now_s):
        return [*node.neighbors.by_handle] if self.is_removed else super().over(node, now_s)


class Hasty(Site):
    """Does not wait for what is left of a link."""

    parting = HastyParting

    def _begin(self):
        super()._begin()
        self.machine.parting = self.parting()


class Clinging(Site):
    """Never lets go of a link."""

    def _disconnect(self, command):
        """Leaves it open."""

    def feed(self, event):
        if not isinstance(event, ev.Part):
            super().feed(event)


class Mute(Site):
    """Does not say what it goes by once it was started again."""

    def says(self):
        return super().says() if self.life == 1 else Stamp(0)

    def _tell(self, report):
        current = self.configuration.current
        if self.life > 1:
            self.configuration.current = type(current)(Stamp(0), current.topology)
        super()._tell(report)
        self.configuration.current = current


class Deaf(Site):
    """Does not listen to what those say that turn it away, or ask it."""

    def hear(self, cluster, said):
        """Has heard nothing."""


class Forgetful(ConfigurationMachine):
    """Does not know that what was taken here has lost."""

    def _look_for_mine(self):
        self._mine = None


class Silent(Site):
    """Says nothing of what has lost."""

    def _use(self, file):
        super()._use(file)
        epoch, current = self.machine.settings.epoch, self.configuration.current
        self.configuration = Forgetful(self.id, epoch, current)


class Lonely(Site):
    """Never has a cluster join that it did not know at its start."""

    def _change(self, changes):
        super()._change(replace(changes, joins=(), delays=()))


class Rude(Hasty):
    """Does not drain when it is removed, but leaves."""

    parting = RudeParting


class Stubborn(Site):
    """Goes on as it was set at its start."""

    def feed(self, event):
        if not isinstance(event, ev.SettingsChanged | ev.PolicySet):
            super().feed(event)


class Retired(Site):
    """Does not come back once it was removed."""

    def feed(self, event):
        if not isinstance(event, ev.Restored):
            super().feed(event)


def play_all(kind):
    """As many as it takes at most until something is noticed."""
    for seed in range(NOTICED_WITHIN):
        History(seed, kind).play()


def test_an_order_that_is_reversed_is_noticed(monkeypatch):
    """All agree in the end, on what had lost."""

    def rank(stamp):
        return (stamp.version, [-ord(letter) for letter in stamp.cluster], stamp.epoch)

    monkeypatch.setattr(Stamp, "__gt__", lambda one, other: rank(one) > rank(other))
    monkeypatch.setattr(Stamp, "__le__", lambda one, other: rank(one) <= rank(other))
    with pytest.raises(Broken, match="back to"):
        play_all(Site)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [First, Hasty, Clinging, Mute, Deaf, Silent, Lonely, Rude, Stubborn, Retired],
)
def test_a_site_that_does_something_wrong_is_noticed(kind):
    """Sooner or later, by what comes of it."""
    with pytest.raises(Broken):
        play_all(kind)
