"""Redis Streams as the partitions of a lease group, consumed in order with fenced checkpoints.

`writer` appends records, `reader` reads them from the checkpoint on, `consume` runs a handler over
them, `lags` says how far behind each partition is, `example` is a handler for `lease run`. What they
ask of Redis is in `reading`, `writing` and lua/, as steps that `client` carries out synchronously
or on an event loop. Who may read a partition is decided by the lease, not here.

**What is promised.** Records of a partition are handled in the order in which they were appended.
Effects in the same Redis (`effects.Effects`) and the checkpoint move in one script, which refuses an
epoch below the highest seen: each record takes effect exactly once, whoever crashes, stalls or comes
back, as long as Redis keeps its data. If it goes back to an older state (a lagging replica), effects
and checkpoints go back together. Effects elsewhere happen at least once: between them and the commit
anything may die. A sink that keeps the record's id beside its effect, and refuses lower epochs,
makes exactly once of it; ids of a partition only grow.
"""
