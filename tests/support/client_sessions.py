"""Announcements, as a client hears them."""

from spillover.core.membership.session_events import Announcement, SessionServer


def servers(names):
    """One at each url."""
    return tuple(SessionServer(name, f"http://{name}") for name in names)


def urls(names):
    return [f"http://{name}" for name in names]


def stored(names, version=1, *, by="a"):
    """What the store of configurations has."""
    return told("", names, version, by=by)


def told(cluster, names, version=1, *, by="a", clients=1, rank=0, surplus=0.0):
    """An announcement."""
    return Announcement(cluster, version, by, 0, servers(names), clients, rank, surplus)
