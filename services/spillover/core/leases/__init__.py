"""The machine of a member of a lease group, which shares out partitions with the others.

`machine` is what happens, `events` what goes in and comes out; `blog` is the source document's
rule.
"""
