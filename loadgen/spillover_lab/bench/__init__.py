"""The benchmarks: what Spillover costs, always beside a peer or a ceiling measured in the same run.

`catalog` names them, one module each, with a second one where there are many processes around it.
What they share is here: `session` runs sides in turn and collects rows, `usage` asks the system
what processes have used, `load_process` asks nodes, `nodes`, `servers` and `relays` start what is
asked. None of these decides anything.
"""
