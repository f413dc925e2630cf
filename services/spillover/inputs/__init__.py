"""Readers of files that users write: topologies, pools, faults and API tokens. Text goes in, and
checked values of `spillover.model` come out. Nothing here decides or runs anything.
"""
