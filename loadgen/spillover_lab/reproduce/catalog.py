"""Which figures there are, and which of them a user means.

A new one goes into the module of its document; a new document gets a module and a place here.
"""

from __future__ import annotations

from collections.abc import Sequence

from spillover.model.errors import InputError
from spillover.model.nearest import nearest
from spillover_lab.reproduce import (
    leases,
    membership,
    networked_queues,
    policies,
    probing,
    tokens,
)
from spillover_lab.reproduce.figure import Document, Figure

DOCUMENTS: Sequence[tuple[Document, Sequence[Figure]]] = tuple(
    (module.DOCUMENT, module.FIGURES)
    for module in (networked_queues, leases, tokens, probing, membership, policies)
)
FIGURES = {figure.name: figure for _, figures in DOCUMENTS for figure in figures}


def select(names: Sequence[str]) -> list[str]:
    """Returns the names of the figures meant, each once, in the catalog's order; all if none is
    named. A name is a figure's or a document's prefix; any other raises InputError."""
    meant = {name: [name] for name in FIGURES}
    meant |= {document.prefix: [figure.name for figure in own] for document, own in DOCUMENTS}
    for name in names:
        if name not in meant:
            known = [*(document.prefix for document, _ in DOCUMENTS), *FIGURES]
            closest = nearest(name, known)
            hint = f"; did you mean {closest}?" if closest is not None else ""
            raise InputError(f"figure {name!r}", "", f"expected one of {', '.join(known)}{hint}")
    chosen = {figure for name in names for figure in meant[name]}
    return [name for name in FIGURES if name in chosen or not names]
