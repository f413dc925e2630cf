"""What a dispatch costs, as `spillover bench tokens` tells it."""

from __future__ import annotations

import json

from spillover.cli import main
from spillover.tools.bench.tokens.workloads import DISPATCHES_OF


def test_a_dispatch_is_measured_beside_a_plain_cluster(capsys):
    assert main(["bench", "tokens", "--quick", "--json", "--case", "dispatch, l"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["case"] for row in rows] == list(DISPATCHES_OF.values())
    for row in rows:
        assert 0 < row["peer_value"] < row["value"] < 1000
        assert (row["peer"], row["unit"]) == ("plain cluster", "us")
