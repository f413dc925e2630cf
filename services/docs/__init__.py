"""The reference for users, and what writes the generated part of it: `python -m docs`, run in
`services/`, or `make reference`.

Pages are Markdown. `configuration.md` is generated from where fields and options are declared; the
other pages are written by hand, and tests compare them with the code. Nothing here is in the wheel.
"""
