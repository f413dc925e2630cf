"""The figures of the five source documents and of our own policy, computed again: a module each,
with what it computes, states and draws. `run` computes them, `page` shows them.
"""
