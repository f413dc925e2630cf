"""Membership in real time: how a configuration travels and is kept, and the sessions of clients
that follow it, at both ends.
"""
