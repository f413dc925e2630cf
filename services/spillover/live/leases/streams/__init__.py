"""Redis Streams as the partitions of a lease group, consumed in order with fenced checkpoints.

`writer` appends records, `reader` reads them from the checkpoint on or runs a handler over them,
`lags` says how far behind each partition is, `example` is a handler for `lease run`. What is asked
of Redis and of handlers, and in which order, is in `reading`, `consuming` and `writing`, as `steps`
that `client` carries out synchronously or on an event loop; scripts are in lua/. Who may read a
partition is decided by its lease, not here.

What is promised: records of a partition are handled in the order in which they were appended.
Effects in the same Redis (`effects`) and the checkpoint change in one script, which refuses an
epoch below the highest seen: each record takes effect exactly once, whoever crashes, stalls or
comes back, as long as Redis keeps its data; if it goes back to an older state (a lagging replica),
effects and checkpoints go back together. Effects elsewhere happen at least once: anything may die
between them and the commit. A sink that keeps a record's id beside its effect, and refuses lower
epochs, makes exactly once of that: ids of a partition only grow.
"""
