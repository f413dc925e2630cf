"""The report of a lease demo: one HTML file that needs nothing else.

The words of the page and their order are in `report.html.jinja`, the drawings in `timeline`; here
is what depends on the run.
"""

from __future__ import annotations

from spillover.tools.demo.leases import timeline
from spillover.tools.demo.leases.model import LeaseDemoResult
from spillover.tools.demo.leases.plan import FREEZE_LEASES, FROZEN, JOINED, KILLED
from spillover.tools.report.formats import duration
from spillover.tools.report.page import made_with, page


def report_page(result: LeaseDemoResult) -> str:
    """Returns the page as text. Raises InputError when jinja2 is not installed."""
    plan = result.plan
    widths_px = (timeline.WIDE_PX, timeline.NARROW_PX)
    return page(
        "demo/leases/report.html.jinja",
        series=len(result.members),
        title="Spillover lease demo",
        headline=_headline(result),
        result=result,
        plan=plan,
        who={mark.kind: mark.node for mark in result.marks},
        frozen_s=FREEZE_LEASES * plan.max_lease_ms / 1000,
        tiles=_tiles(result),
        owners=[timeline.owners_drawing(result, width_px) for width_px in widths_px],
        held=[timeline.held_drawing(result, width_px) for width_px in widths_px],
        rates=[timeline.rates_drawing(result, width_px) for width_px in widths_px],
        legend=[*timeline.member_legend(result), ("warning", "nobody")],
        standstills=result.standstill_rows(),
        checks=[
            (
                str(one.partition),
                (one.records, one.sum, one.applied, one.applied_sum, one.missing, one.duplicates),
            )
            for one in result.checks
        ],
        facts=_facts(result),
    )


def _headline(result: LeaseDemoResult) -> str:
    if result.problems:
        return "Records were lost or applied twice: this is a bug in Spillover"
    return f"{result.records:,} records, each applied exactly once"


def _tiles(result: LeaseDemoResult) -> list[tuple[str, str]]:
    late = result.late_writes
    wrong = f"{result.missing} missing, {result.duplicates} doubled"
    tiles = [
        (f"{result.applied:,}", f"records applied: {wrong}"),
        (f"{late.refused} of {late.tried}", "late writes of former holders refused by the sink"),
    ]
    for cause, words in ((KILLED, "killed"), (FROZEN, "frozen"), (JOINED, "added")):
        length = duration(result.standstills_ms(cause)["max"])
        tiles.append((length, f"longest standstill of a stream: member {words}"))
    return tiles


def _facts(result: LeaseDemoResult) -> dict[str, str]:
    plan, times = result.plan, result.plan.times
    phases = ", ".join(f"{name} {length_s:.1f} s" for name, length_s in result.phases_s.items())
    return {
        "finished": result.finished_at,
        "seed": str(plan.seed),
        "records": f"{plan.records:,} in {plan.streams} streams, {result.records_per_s:,.0f}/s",
        "lease times": (
            f"normal {times.normal_lease_ms:g} ms, maximum {times.max_lease_ms:g} ms, shutdown "
            f"{times.max_shutdown_ms:g} ms, grab {times.min_grab_ms:g} ms, "
            f"delay {times.held_delay_ms:g} ms"
        ),
        "what took how long": phases,
        "late renewals": str(sum(one.late_renewals for one in result.members)),
        **made_with(f"Redis {result.redis_version}"),
    }
