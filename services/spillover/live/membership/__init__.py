"""Membership in real time: a federation's configuration, how it travels and the store that may keep
it; and the sessions of clients that follow it, at both ends."""
