"""The page of all reproduced figures: one HTML file that needs nothing else, neither the papers nor
the internet.

The words on the documents are in `documents`, those on a figure beside its computation, the look is
in `page_style`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from pathlib import Path

from spillover.model.errors import RunError
from spillover.tools.reproduce.catalog import document_of, figures
from spillover.tools.reproduce.documents import DOCUMENTS, Document
from spillover.tools.reproduce.figure import Claim, Figure
from spillover.tools.reproduce.page_style import style_sheet
from spillover.tools.reproduce.record import Record, read_record, versions, write_whole

PAGE_NAME = "index.html"

_TITLE = "Spillover: the figures of five documents, computed again"


def write_page(directory: Path) -> Path:
    """Write the page on all computed figures in `directory`; where it is.

    Raises RunError if it cannot be written.
    """
    found = (read_record(name, directory) for name in figures())
    page = reproduction_page([record for record in found if record is not None], directory)
    path = directory / PAGE_NAME
    try:
        write_whole(path, page.encode())
    except OSError as error:
        raise RunError(f"{path}: the page cannot be written: {error.strerror}") from error
    return path


def reproduction_page(records: list[Record], directory: Path) -> str:
    """The page as HTML text; the images of the records are read from `directory`."""
    known = figures()
    by_name = {record.name: record for record in records}
    # Figures that were not computed yet are named, so that nobody takes the page for complete.
    missing = [name for name in known if name not in by_name]
    sections = "\n".join(
        _section(document, by_name, directory)
        for document in DOCUMENTS
        if any(document_of(name) is document for name in by_name)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(_TITLE)}</title>\n<style>\n{style_sheet()}</style>\n</head>\n"
        f"<body>\n<main>\n{_opening(by_name, missing)}\n{sections}\n</main>\n"
        f"{_footer(records)}\n</body>\n</html>\n"
    )


def _opening(by_name: Mapping[str, Record], missing: list[str]) -> str:
    claims = [claim for record in by_name.values() for claim in record.claims]
    hold = sum(claim.holds for claim in claims)
    absent = f'<p class="note">Not computed yet: {", ".join(missing)}.</p>' if missing else ""
    return f"""<h1>Five documents on sharing load, computed again</h1>
<p class="lede">Spillover is built on five documents that each describe a way for computers to share
work without a center. They show their results as figures. This page shows {len(by_name)} of those
figures, computed from scratch with the code that Spillover runs or with the documents&rsquo; own
equations, beside what the documents say about them: {hold} of {len(claims)} statements came out as
stated.</p>
<p>No document needs to be known: each part begins with the problem and the idea in plain words.
Below each figure stands a table of what the document states in words or formulas, and what was
measured here. Where a statement did not come out, the table says so.</p>
{absent}
{_contents(by_name)}"""


def _contents(by_name: Mapping[str, Record]) -> str:
    parts = []
    for document in DOCUMENTS:
        own = [record for record in by_name.values() if document_of(record.name) is document]
        if own:
            lines = "".join(
                f'<li><a href="#{record.name}">{escape(record.title)}</a></li>' for record in own
            )
            heading = f'<a href="#{document.prefix}">{escape(document.heading)}</a>'
            parts.append(f"<li><b>{heading}</b><ul>{lines}</ul></li>")
    return f'<ul class="contents">{"".join(parts)}</ul>'


def _section(document: Document, by_name: Mapping[str, Record], directory: Path) -> str:
    told = {
        "The problem": document.problem,
        "The idea": document.mechanism,
        "What is computed here": document.reproduced,
        "What the document leaves open": document.left_open,
    }
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in told.items())
    shown = "\n".join(
        _shown(figure, by_name[name], directory)
        for name, figure in figures().items()
        if name in by_name and document_of(name) is document
    )
    return f"""<section id="{document.prefix}">
<h2>{escape(document.heading)}</h2>
<p class="citation">{escape(document.citation)}</p>
<dl class="told">{rows}</dl>
{shown}
</section>"""


def _shown(figure: Figure, record: Record, directory: Path) -> str:
    light, dark = (_embedded(directory / name) for name in (record.image, record.dark_image))
    seed = f"seed {record.seed}, {_effort_words(record)}, computed in {record.computed_s:.0f} s"
    return f"""<article id="{record.name}">
<h3>{escape(record.title)} <small>{escape(record.name)}</small></h3>
<p>{figure.explanation}</p>
<figure><picture><source srcset="{dark}" media="(prefers-color-scheme: dark)">
<img src="{light}" alt="{escape(record.title)}"></picture>
<figcaption>{escape(seed)}; all values are in
<a href="{record.name}.json">{record.name}.json</a>.</figcaption></figure>
{_claims_table(record.claims)}
</article>"""


def _effort_words(record: Record) -> str:
    return "the document's run lengths" if record.effort == "full" else "default precision"


def _embedded(image: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(image.read_bytes()).decode()}"


def _claims_table(claims: list[Claim]) -> str:
    if not claims:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(claim.text)}</th>'
        f'<td data-column="stated">{escape(claim.stated)}</td>'
        f'<td data-column="measured">{escape(claim.measured)}</td>{_verdict(claim)}</tr>'
        for claim in claims
    )
    return (
        '<div class="scroll"><table><thead><tr><th scope="col">statement</th>'
        '<th scope="col">stated</th><th scope="col">measured here</th>'
        f'<th scope="col">holds</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _verdict(claim: Claim) -> str:
    name = "yes" if claim.holds else "no"
    return f'<td data-column="holds" class="{name}">{name}</td>'


def _footer(records: list[Record]) -> str:
    if not records:
        return "<footer></footer>"
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
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    return f"<footer>\n<h2>About these numbers</h2>\n<dl>{rows}</dl>\n</footer>"
