"""The page about operations: each alert has its section, and leads to it. Links between the pages
lead somewhere."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "services" / "docs"
PAGES = [
    *sorted(DOCS.glob("*.md")),
    *(ROOT / top / "README.md" for top in (".", "loadgen", "deploy", "dashboards")),
]

ALERTS = [
    rule
    for group in yaml.safe_load((ROOT / "dashboards" / "alerts.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
SEVERITY = {"page": "*Page.*", "ticket": "*Ticket.*"}


def anchors_of(page):
    """As GitHub makes them of headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_each_alert_has_its_section(rule):
    text = (DOCS / "operations.md").read_text("utf-8")
    name = rule["alert"]
    assert f"\n### {name}\n" in text, f"services/docs/operations.md: no section {name}"
    section = text.split(f"\n### {name}\n", 1)[1].split("\n#", 1)[0].strip()
    assert section.startswith(SEVERITY[rule["labels"]["severity"]])
    assert re.search(r"^1\. ", section, re.MULTILINE), "what to do, step by step"
    assert rule["annotations"]["runbook"] == f"services/docs/operations.md#{name.lower()}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    """To files of the repository and to headings; other hosts are not asked."""
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors_of(target), link
