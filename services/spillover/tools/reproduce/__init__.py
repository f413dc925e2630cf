"""`spillover reproduce`: the figures of the five source documents, computed again.

One module a document, each a tuple of `Figure`s; `page` puts them into one HTML page. The
simulations and models themselves are in `spillover.sim`.
"""
