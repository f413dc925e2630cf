"""The benchmarks: what Spillover costs, always beside a peer or a ceiling measured in the same run.

One module (or package) a benchmark, named in `catalog`; what they share is here: `session` runs
sides in turn, `servers`, `bare` and `haproxy` are what stands beside us, `load_process` asks.
Nothing that is measured lives here, and nothing here decides.
"""
