"""The page of all reproduced figures: one HTML file that needs nothing else, neither the papers nor
the internet.

Its words and their order are in `page.html.jinja`, those on the documents in `documents`, those on
a figure beside its computation; here is what depends on what was computed.
"""

from __future__ import annotations

import base64
from pathlib import Path

from spillover.model.errors import RunError
from spillover.tools.report.page import page
from spillover.tools.reproduce.catalog import document_of, figures
from spillover.tools.reproduce.documents import DOCUMENTS
from spillover.tools.reproduce.record import Record, read_record, versions, write_whole

PAGE_NAME = "index.html"

_TITLE = "Spillover: the figures of five documents, computed again"


def write_page(directory: Path) -> Path:
    """Writes the page on all computed figures in `directory`; returns where it is.

    Raises RunError if it cannot be written.
    """
    found = (read_record(name, directory) for name in figures())
    text = reproduction_page([record for record in found if record is not None], directory)
    path = directory / PAGE_NAME
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise RunError(f"{path}: the page cannot be written: {error.strerror}") from error
    return path


def reproduction_page(records: list[Record], directory: Path) -> str:
    """Returns the page as HTML text; the images of the records are read from `directory`."""
    known = figures()
    by_name = {record.name: record for record in records}
    claims = [claim for record in records for claim in record.claims]
    parts = {
        name: {
            "record": by_name[name],
            "explanation": figure.explanation,
            "light": _embedded(directory / by_name[name].image),
            "dark": _embedded(directory / by_name[name].dark_image),
        }
        for name, figure in known.items()
        if name in by_name
    }
    documents = [
        (document, [part for name, part in parts.items() if document_of(name) is document])
        for document in DOCUMENTS
    ]
    return page(
        "reproduce/page.html.jinja",
        title=_TITLE,
        shown=len(records),
        claims=len(claims),
        hold=sum(claim.holds for claim in claims),
        # Figures that were not computed yet are named, so that nobody takes the page for complete.
        missing=[name for name in known if name not in by_name],
        documents=[(document, own) for document, own in documents if own],
        facts=_facts(records),
    )


def _embedded(image: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(image.read_bytes()).decode()}"


def _facts(records: list[Record]) -> dict[str, str]:
    if not records:
        return {}
    now = versions()
    facts = {
        "versions": ", ".join(f"{name} {number}" for name, number in now.items()),
        "seeds": ", ".join(sorted({str(record.seed) for record in records})),
        "computed in": f"{sum(record.computed_s for record in records):.0f} s of one core",
        "again": "spillover reproduce --out DIR; --full for the documents' run lengths",
    }
    older = [record.name for record in records if record.versions != now]
    if older:
        facts["by another version"] = ", ".join(older)
    return facts
