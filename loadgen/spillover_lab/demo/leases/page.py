"""The page of a lease demo: one HTML file that needs nothing else. Its words, their order and the
timeline are in `page.html.jinja`.
"""

from __future__ import annotations

from spillover_lab.demo.leases.ownership import FROZEN, JOINED, KILLED
from spillover_lab.demo.leases.show import FREEZE_LEASES, Result
from spillover_lab.report.formats import duration
from spillover_lab.report.page import made_with, page

ROW_PX_MIN, ROW_PX_MAX, ROWS_PX = 5, 22, 460


def standstill_rows(result: Result) -> list[tuple[str, list[str]]]:
    """Returns what happened, the number of streams that moved, and how long they stood still."""
    nodes = {mark.kind: mark.node for mark in result.marks}
    return [
        (f"{nodes.get(cause, '')} {cause}", [str(told["count"]), *map(duration, lengths)])
        for cause, told in result.ownership.standstills_ms.items()
        for lengths in [(told["max"], told["median"])]
    ]


def lease_page(result: Result) -> str:
    """Returns the page as text. Raises InputError when jinja2 is not installed."""
    plan = result.plan
    stills_ms = result.ownership.standstills_ms
    wrong = f"{result.missing} missing, {result.duplicates} doubled"
    late = f"{result.refused} of {result.late_writes}"
    if result.problems:
        headline = "Records were lost or applied twice: this is a bug in Spillover"
    else:
        headline = f"{plan.records:,} records, each applied exactly once"
    return page(
        "demo/leases/page.html.jinja",
        series=len(result.members),
        title="Spillover lease demo",
        headline=headline,
        result=result,
        plan=plan,
        who={mark.kind: mark.node for mark in result.marks},
        frozen_s=FREEZE_LEASES * plan.max_lease_ms / 1000,
        tiles=[
            (f"{result.applied:,}", f"records applied: {wrong}"),
            (late, "late writes of former holders refused by the sink"),
            *(
                (duration(stills_ms[kind]["max"]), f"longest standstill of a stream: member {kind}")
                for kind in (KILLED, FROZEN, JOINED)
            ),
        ],
        row_px=max(ROW_PX_MIN, min(ROW_PX_MAX, ROWS_PX / plan.streams)),
        colors={node: f"series-{index}" for index, node in enumerate(result.members)},
        standstills=standstill_rows(result),
        checks=[
            (str(one.partition), (one.expected, one.applied, one.distinct, one.out_of_order))
            for one in result.checks
        ],
        facts={
            "seed": str(plan.seed),
            "records": f"{plan.records:,} in {plan.streams} streams, {result.records_per_s:,.0f}/s",
            "lease times": f"maximum {plan.times.max_lease_ms:g} ms, renewed every "
            f"{plan.times.normal_lease_ms:g} ms, shutdown {plan.times.max_shutdown_ms:g} ms",
            **made_with(f"Redis {result.redis_version}"),
        },
    )
