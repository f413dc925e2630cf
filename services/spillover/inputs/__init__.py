"""Reading what users write: topology files and the built-in topologies.

Text goes in, checked values of `spillover.model` come out. Nothing here decides or runs anything.
"""
