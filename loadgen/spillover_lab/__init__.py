"""The lab shows Spillover (`demo`), measures it (`bench`) and computes published figures again
(`reproduce`). The product in `spillover` never imports it: its commands are in `commands`, which
entry points name.

`report` makes pages and pictures for all of them, `processes` holds the processes they start.
"""
