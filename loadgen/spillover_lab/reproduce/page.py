"""The page of all reproduced figures: one HTML file that needs nothing else, neither the papers nor
the internet.

Its words and their order are in `page.html.jinja`, those on a document and its figures in their
module; here is what depends on what was computed.
"""

from __future__ import annotations

import base64
from pathlib import Path

from spillover.model.errors import RunError
from spillover_lab.report.page import page
from spillover_lab.reproduce.catalog import DOCUMENTS, FIGURES
from spillover_lab.reproduce.run import Record, read_record, versions, write_whole


def write_page(directory: Path) -> Path:
    """Writes index.html on all computed figures in `directory`; returns where it is.

    Raises RunError if it cannot be written.
    """
    read = (read_record(name, directory) for name in FIGURES)
    found = {record.name: record for record in read if record is not None}
    documents = [
        (document, [_part(found[f.name], f.explanation, directory) for f in own if f.name in found])
        for document, own in DOCUMENTS
    ]
    text = page(
        "reproduce/page.html.jinja",
        title="Spillover: the figures of five documents and of our own policy, computed again",
        shown=len(found),
        claims=sum(len(record.claims) for record in found.values()),
        hold=sum(record.hold for record in found.values()),
        # Figures that were not computed yet are named, so that nobody takes the page for complete.
        missing=[name for name in FIGURES if name not in found],
        documents=[(document, parts) for document, parts in documents if parts],
        facts=_facts(list(found.values())),
    )
    path = directory / "index.html"
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise RunError(f"{path}: the page cannot be written: {error.strerror}") from error
    return path


def _part(record: Record, explanation: str, directory: Path) -> dict[str, object]:
    light, dark = (
        f"data:image/png;base64,{base64.b64encode((directory / name).read_bytes()).decode()}"
        for name in record.images
    )
    return {"record": record, "explanation": explanation, "light": light, "dark": dark}


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
    return facts | ({"by another version": ", ".join(older)} if older else {})
