"""Fenced sinks: where handlers of partitions write, so that a late one of an earlier epoch cannot.

The rule of all of them: each remembers the highest epoch that it has seen for a partition and takes
nothing from a lower one; not writes, not deletes, not checkpoints. A handler claims its partition
first, before it reads what its forerunner left. `Fenced` means that nothing was done. Nothing is
imported here: one loads only the sink that one uses.
"""
