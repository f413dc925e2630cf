"""A display of the lease demo that keeps what it is to show."""

from __future__ import annotations

from spillover.tools.demo.leases.display import LeaseDisplay


class Shown(LeaseDisplay):
    """Notes what it is to show."""

    def __init__(self):
        super().__init__()
        self.views, self.told = [], []

    def show(self, view):
        self.views.append(view)

    def tell(self, at_s, words):
        assert 0.0 <= at_s < 60.0
        self.told.append(words)
