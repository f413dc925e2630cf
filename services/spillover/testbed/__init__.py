"""Federations of processes on this machine: start, watch, ask, end."""
