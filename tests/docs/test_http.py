"""The page about HTTP: it has each call, header and reason of the services, and none besides."""

from pathlib import Path

from spillover.apps.http.problems import STATUS_BY_REASON
from spillover.apps.node.openapi import REQUEST_HEADERS

PAGE = (Path(__file__).parents[2] / "services" / "docs" / "http.md").read_text(encoding="utf-8")


def rows(heading):
    """The rows of the table whose first column has this heading, cell by cell."""
    table = PAGE.split(f"\n| {heading} |", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()[2:]]


def test_each_reason_stands_there_once_with_its_status():
    """Among those of nodes, of members, of producers, or of several."""
    found = {}
    for heading in ("reason", "reason of a member", "reason of a producer"):
        told = [(row[0].strip("`"), int(row[1])) for row in rows(heading)]
        assert len(dict(told)) == len(told)
        assert set(told) <= set(STATUS_BY_REASON.items())
        found |= told
    missing = set(STATUS_BY_REASON) - set(found)
    assert not missing, f"services/docs/http.md: no row for {', '.join(sorted(missing))}"


def test_each_call_stands_there_once(described_node):
    calls = [row[0].strip("`") for row in rows("call")]
    described = {
        f"{method.upper()} {path}"
        for path, methods in described_node["paths"].items()
        for method in methods
    }
    assert len(set(calls)) == len(calls)
    assert set(calls) == described | {"GET /docs"}


def test_each_header_that_means_something_stands_there():
    told = {row[0].strip("`").lower() for row in rows("request header")}
    assert told == {header["name"].lower() for header in REQUEST_HEADERS}
