"""The page about the client: what stands there runs, and nothing is missing from it."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "services" / "docs" / "client.md").read_text("utf-8")


@pytest.mark.slow
def test_the_example_runs(bed, capsys):
    code = PAGE.split("```python\n", 1)[1].split("```", 1)[0]
    code = re.sub(r"http://127\.0\.0\.1:810\d", bed.url, code)
    exec(code, {"payloads": [{"service_ms": 1}, {"service_ms": 2}]})  # noqa: S102 - our own page
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("{'service_ms': 10.0} a ")
    assert shown[-2:] == ["{'service_ms': 1.0}", "{'service_ms': 2.0}"]
