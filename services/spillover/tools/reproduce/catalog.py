"""Which figures there are, and which of them a user means.

A new one goes into the module of its document; a new document gets an entry in `documents`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache

from spillover.model.errors import InputError
from spillover.model.nearest import nearest
from spillover.tools.reproduce.documents import DOCUMENTS, Document
from spillover.tools.reproduce.figure import Figure


@cache
def figures() -> dict[str, Figure]:
    """Returns all figures by name, document by document."""
    return {figure.name: figure for document in DOCUMENTS for figure in figures_of(document)}


def figures_of(document: Document) -> tuple[Figure, ...]:
    """Returns the figures of one document, in its order."""
    module = importlib.import_module(f"spillover.tools.reproduce.{document.module}")
    found: tuple[Figure, ...] = module.FIGURES
    return found


def document_of(name: str) -> Document:
    """Returns the document that the figure of that name is in."""
    return next(found for found in DOCUMENTS if name.startswith(f"{found.prefix}-"))


def select(names: Sequence[str]) -> list[str]:
    """Returns the names of the figures meant, each once, in the catalog's order; all if none is
    named.

    A name is that of a figure or the prefix of a document's. Raises InputError for any other.
    """
    known = list(figures())
    chosen = set()
    for name in names:
        meant = {figure for figure in known if name in {figure, document_of(figure).prefix}}
        if not meant:
            prefixes = [document.prefix for document in DOCUMENTS]
            closest = nearest(name, [*prefixes, *known])
            expected = f"expected one of {', '.join([*prefixes, *known])}"
            if closest is not None:
                expected += f"; did you mean {closest}?"
            raise InputError(f"figure {name!r}", "", expected)
        chosen |= meant
    return [figure for figure in known if figure in chosen or not names]
