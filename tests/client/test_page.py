"""The page about the client: what stands there runs, and nothing is missing from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spillover import client
from spillover.model.errors import InputError, PeerError

PAGE = (Path(__file__).parents[2] / "services" / "docs" / "client.md").read_text("utf-8")


@pytest.mark.slow
def test_the_example_runs(bed, capsys):
    code = PAGE.split("```python\n", 1)[1].split("```", 1)[0]
    code = re.sub(r"http://127\.0\.0\.1:810\d", bed.url, code)
    exec(code, {"payloads": [{"service_ms": 1}, {"service_ms": 2}]})  # noqa: S102 - our own page
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("{'service_ms': 10.0} a ")
    assert shown[-2:] == ["{'service_ms': 1.0}", "{'service_ms': 2.0}"]


def test_each_error_of_a_request_has_its_row():
    of_others = {"GrantLost", "QueueFull", "RunError", "SpilloverError", "Fenced"}
    raised = {
        name
        for name in client.__all__
        if isinstance(of := getattr(client, name), type) and issubclass(of, (PeerError, InputError))
    }
    table = PAGE.split("| error |", 1)[1].split("\n\n", 1)[0]
    told = set(re.findall(r"^\| `(\w+)", table, re.MULTILINE))
    assert told == raised - of_others
