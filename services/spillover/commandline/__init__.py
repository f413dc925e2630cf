"""The common parts of this project's command lines: the parser and its one-line errors, types of
option values, tables of results, API tokens and CAs of callers. The commands themselves are in
`spillover.cli`, `spillover_loadgen` and `spillover_lab`.
"""
