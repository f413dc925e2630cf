"""Clients that follow a federation: their sessions at both ends, in real time."""
