"""Decisions as stateless functions: the papers' formulas and nothing else.

Numbers and arrays in, numbers out; the uniform draw and every buffer are arguments. No clock, no
I/O, no random source, no classes: the same source runs under CPython in a node and compiled by
numba in the fast simulator. Compiling is done from outside.
"""
