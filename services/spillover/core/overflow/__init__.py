"""The machine of a cluster that keeps a queue of its own and hands on what is too much (networked
queues).

`machine` has what happens, `events` what goes in and comes out; the rest are its parts.
"""
