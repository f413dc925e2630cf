"""Schedules of requests: drawn, read from traces, or described by options of a command. Others send
or simulate them."""
