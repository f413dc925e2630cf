"""Compiled kernels for statistics that need 10^8 events (extra `sim`: numba and numpy).

They call the same policy functions as the services, compiled; `tests/sim/fast` checks them against
`sim` proper on the same traces. No file, no option, no plot.
"""
