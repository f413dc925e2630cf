"""What is drawn of what was measured, by hand: each value at its place, each with its name."""

from __future__ import annotations

import pytest

from spillover.tools.reproduce import (
    leases_drawing,
    membership,
    networked_queues_drawing,
    probing_drawing,
    tokens_drawing,
)
from support.drawn import drawn

TIMES = "\N{MULTIPLICATION SIGN}"


# --- queues with probes ---------------------------------------------------------------------------


def point(x, model, simulated=None, ci95=0.5, field="wait_mean", **more):
    told = {"x": x, "model": {field: model}, **more}
    if simulated is not None:
        told |= {"simulated": {field: simulated}, "ci95": {field: ci95}}
    return told


def both(field, one=0.25, other=0.5):
    """Two curves of two points: with simulated ones a bit above, or without."""
    return {
        "load 50 %": [
            point(1, one, one + 0.1, field=field),
            point(3, other, other + 0.1, field=field),
        ],
        "h_max 3": [point(1, 1.0, 0.9, field=field), point(3, 0.75, 0.65, field=field)],
    }


def lines_of(row):
    return {name: at for name, at in row["lines"].items() if not name.startswith("_")}


TITLES = {
    "draw_2": ["probes for one object, on average"],
    "draw_6": ["wait for an object, in message times"],
    "draw_7": ["wait for an object, in message times"],
}


@pytest.mark.parametrize(
    ("name", "field"), [("draw_2", "probes_mean"), ("draw_6", "wait_mean"), ("draw_7", "wait_mean")]
)
def test_curves_are_lines_by_the_equations_with_points_beside_them(name, field):
    (row,) = drawn(getattr(probing_drawing, name), {"curves": both(field, 2.0, 4.0)})
    assert [row["title"]] == TITLES[name]
    assert lines_of(row) == {
        "load 50 %": [[1.0, 2.0], [3.0, 4.0]], "$h_{max}$ 3": [[1.0, 1.0], [3.0, 0.75]],
    }  # fmt: skip
    assert row["legend"] == ["load 50 %", "$h_{max}$ 3"]
    assert row["labels"][0] == "most probes allowed, $h_{max}$"
    assert row["ticks"] == list(range(1, 11))
    assert row["scales"] == ("linear", "log" if name == "draw_6" else "linear")
    points = [row["points"][key] for key in row["points"]]
    assert len({row["colors"][name] for name in lines_of(row)}) == 2
    assert points[-1] == [(1.0, 0.9, 0.4, 1.4), (3.0, 0.65, 0.15, 1.15)]


def test_many_producers_are_drawn_by_how_far_they_are_off():
    """In percent above the equations."""
    many = {
        "h_max 5": [point(100, 200.0, 210.0, 10.0), point(300, 100.0, 101.0, 1.0)],
        "h_max 10": [point(100, 50.0, 49.0, 2.0), point(300, 50.0, 50.0, 1.0)],
    }
    left, right = drawn(
        probing_drawing.draw_3, {"curves": both("wait_mean"), "many_producers": many}
    )
    assert left["title"] == "wait for an object, in message times"
    assert left["limits"][1][0] == 0.0
    assert right["title"] == "load 100 %: simulated, % above"
    assert right["points"]["$h_{max}$ 5"] == [(100.0, 5.0, 0.0, 10.0), (300.0, 1.0, 0.0, 2.0)]
    assert right["points"]["$h_{max}$ 10"] == [(103.0, -2.0, -6.0, 2.0), (309.0, 0.0, -2.0, 2.0)]
    assert (right["scales"][0], right["labels"][0]) == ("log", "producers, and consumers")
    assert right["names"] == ["100", "300"]
    assert right["legend"] == ["$h_{max}$ 5", "$h_{max}$ 10"]


def test_blocked_is_what_is_not_used():
    def curve(empty, used):
        return [
            {"x": x, "model": {"empty_probability": empty, "producer_utilization": used}}
            for x in (1, 2)
        ]

    curves = {"load 50 %": curve(0.125, 0.75)}
    left, right = drawn(probing_drawing.draw_4, {"curves": curves})
    assert lines_of(left) == {"load 50 %": [[1.0, 0.125], [2.0, 0.125]]}
    assert lines_of(right) == {"load 50 %": [[1.0, 0.25], [2.0, 0.25]]}
    assert left["points"] == {}
    assert [row["title"] for row in (left, right)] == [
        "probes that find an empty producer", "share of the time in which a producer is blocked",
    ]  # fmt: skip
    assert [row["limits"][1] for row in (left, right)] == [(0.0, 1.0)] * 2
    assert (left["legend"], right["legend"]) == ([], ["load 50 %"])
    left, right = drawn(probing_drawing.draw_5, {"curves": both("producer_utilization")})
    assert lines_of(left)["load 50 %"] == [[1.0, 0.25], [3.0, 0.5]]
    assert lines_of(right)["load 50 %"] == [[1.0, 0.75], [3.0, 0.5]]
    assert left["title"] == "share of production that is used"
    assert right["title"] == "share of the time in which a producer is blocked"
    assert left["labels"][0] == right["labels"][0] == "buffers at each producer"
    assert left["ticks"] == [0, 5, 10, 15, 20]


def test_who_is_probed_by_what_they_make_is_marked_where_that_is_their_share():
    data = {
        "curves": both("wait_mean", 3.0, 9.0),
        "made_by_fast": {"load 50 %": 0.25, "h_max 3": 0.5},
    }
    (row,) = drawn(probing_drawing.draw_8, data)
    places = sorted(at[0][0] for at in row["lines"].values() if at[0][0] == at[1][0])
    assert places == [0.25, 0.5]
    assert row["labels"][0] == "share of the probes that goes to fast producers"
    assert row["limits"][0] == (0.0, 1.0)
    assert row["scales"] == ("linear", "log")
    assert row["legend"] == ["load 50 %", "$h_{max}$ 3"]


def test_the_equations_as_printed_are_beside_those_that_are_mended():
    curves = {"h_max 1": [
        point(1, 9.0, 10.0, printed={"wait_mean": 4.0}),
        point(2, 8.0, 8.5, printed={"wait_mean": 5.0}),
    ]}  # fmt: skip
    (row,) = drawn(probing_drawing.draw_9, {"curves": curves})
    assert lines_of(row) == {"$h_{max}$ 1": [[1.0, 9.0], [2.0, 8.0]]}
    assert [[1.0, 4.0], [2.0, 5.0]] in row["lines"].values()
    assert row["scales"] == ("log", "log")
    assert row["names"] == ["1", "2", "3", "5", "10", "20", "50", "100"]
    assert row["labels"][0] == "producers that a consumer may probe"
    assert row["legend"] == ["$h_{max}$ 1"]


# --- tokens ---------------------------------------------------------------------------------------


def test_policies_are_lines_of_what_is_used_and_what_is_turned_away():
    policies = ("dynamic", "static-best", "static-uniform", "ideal")
    curves = {
        policy: {"occupancy": [0.5, 0.75 + k / 100], "blocking": [0.0, 0.25 - k / 100]}
        for k, policy in enumerate(policies)
    }
    upper, lower = drawn(tokens_drawing.draw_policies, {"loads": [0.5, 1.0], "curves": curves})
    names = ["tokens", "best static", "uniform static", "ideal"]
    assert upper["lines"] == {
        name: [[0.5, 0.5], [1.0, 0.75 + k / 100]] for k, name in enumerate(names)
    }
    assert lower["lines"] == {
        name: [[0.5, 0.0], [1.0, 0.25 - k / 100]] for k, name in enumerate(names)
    }
    assert upper["legend"] == names
    assert upper["title"] == "share of the servers' capacity in use"
    assert lower["title"] == "share of jobs turned away"
    assert lower["labels"][0] == "load"
    assert lower["limits"][0][0] == 0.0
    assert 1.0 < lower["limits"][0][1] < 1.1
    assert len(set(upper["colors"].values())) == 4


def test_tokens_are_lines_with_their_number():
    data = {
        "loads": [0.5, 1.0],
        "curves": {"1": {"blocking": [0.1, 0.4]}, "10": {"blocking": [0.0, 0.2]}},
        "ideal": {"blocking": [0.0, 0.1]},
    }
    (row,) = drawn(tokens_drawing.draw_tokens, data)
    assert row["lines"] == {
        "1 token": [[0.5, 0.1], [1.0, 0.4]], "10 tokens": [[0.5, 0.0], [1.0, 0.2]],
        "ideal": [[0.5, 0.0], [1.0, 0.1]],
    }  # fmt: skip
    assert row["legend"] == ["1 token", "10 tokens", "ideal"]
    assert row["title"] == "share of jobs turned away"
    assert (row["colors"]["1 token"], row["colors"]["10 tokens"]) == ("C0", "C1")


def test_marks_are_above_at_their_value_and_below_at_their_difference():
    def mark(load, value):
        return {
            "load": load,
            "simulated": {"t1": value, "t2": value}, "ci95": {"t1": 0.001, "t2": 0.002},
            "exact": {"t1": value - 0.003, "t2": value},
        }  # fmt: skip

    data = {
        "loads": [0.5, 1.0], "lines": {"t1": [0.1, 0.2], "t2": [0.3, 0.4]},
        "marks": {"hyper": [mark(0.5, 0.11)], "hyper-by-class": [mark(1.0, 0.22)]},
    }  # fmt: skip
    upper, lower = drawn(tokens_drawing.draw_sizes, data)
    assert lines_of(upper) == {
        "type 1, exact": [[0.5, 0.1], [1.0, 0.2]], "type 2, exact": [[0.5, 0.3], [1.0, 0.4]],
    }  # fmt: skip
    marks = [at for name, at in upper["lines"].items() if name.startswith("_")]
    assert marks == [[[0.5, 0.11]], [[0.5, 0.11]]]
    assert {name: points[0][1:] for name, points in lower["points"].items()} == {
        "type 1, simulated, a law for each type": (0.003, 0.002, 0.004),
        "type 1, simulated, a law for each server": (0.003, 0.002, 0.004),
        "type 2, simulated, a law for each type": (0.0, -0.002, 0.002),
        "type 2, simulated, a law for each server": (0.0, -0.002, 0.002),
    }
    assert [round(points[0][0], 1) for points in lower["points"].values()] == [0.5, 1.0, 0.5, 1.0]
    assert set(lower["markers"].values()) == {"o", "s"}, "circles and squares, as the page says"
    assert upper["legend"] == ["type 1, exact", "type 2, exact"]
    assert len(lower["legend"]) == 4
    assert "share of jobs turned away" in upper["title"]
    assert lower["title"] == "simulated less exact, with 95 % intervals"
    assert [[0.0, 0.0], [1.0, 0.0]] in lower["lines"].values()


# --- leases ---------------------------------------------------------------------------------------


def test_moves_are_lines_and_owners_are_colors():
    names = ("blog, calm", "blog, stalled", "guarded, calm", "guarded, stalled")
    lines = {name: [0.0, 10.0 * k, 20.0 * k] for k, name in enumerate(names)}
    data = {
        "curves": {"16, even": lines, "17, odd": lines},
        "rows": [{"case": "17, odd", "moves_min": 3}, {"case": "16, even", "moves_min": 0}],
        "timelines": {"blog": [[0, None, 1]], "guarded": [[0, 0, 0]]}, "timeline_periods": 3,
    }  # fmt: skip
    even, odd, blog, guarded = drawn(leases_drawing.draw_moves, data)
    labels = [
        "document's rule, nobody late", "document's rule, one late", "guarded, nobody late",
        "guarded, one late",
    ]  # fmt: skip
    for row, fewest in ((even, []), (odd, [("fewest: 3", (2, 3))])):
        assert lines_of(row) == {
            label: [[0.0, 0.0], [1.0, 10.0 * k], [2.0, 20.0 * k]] for k, label in enumerate(labels)
        }
        assert row["texts"] == fewest
        assert row["labels"][0] == "normal lease times"
        assert row["scales"][1] == "symlog"
    assert (even["title"], odd["title"]) == ("16, even", "17, odd")
    assert (even["labels"][1], odd["labels"][1]) == ("moves so far", "")
    assert [[0.0, 3.0], [1.0, 3.0]] in odd["lines"].values()
    assert blog["title"] == "who runs which partition, one late: document's rule"
    assert guarded["title"] == "who runs which partition, one late: guarded"
    assert blog["labels"] == ("normal lease times", "partition")
    assert blog["limits"] == ((0.0, 3.0), (0.5, -0.5))
    styles = even["styles"]
    assert styles[labels[0]] == styles[labels[2]] != styles[labels[1]] == styles[labels[3]]
    colors = even["colors"]
    assert colors[labels[0]] == colors[labels[1]] != colors[labels[2]] == colors[labels[3]]


# --- membership -----------------------------------------------------------------------------------


def test_servers_are_drawn_from_the_emptiest_to_the_fullest():
    def event(servers, most, fewest):
        told = {"max_over_mean": most, "min_over_mean": fewest, "servers": servers}
        return {
            name: {"mean": value, "p05": value - 0.1, "p95": value + 0.2}
            for name, value in told.items()
        }

    rules = {"one": [event(9, 1.25, 0.75), event(8, 1.5, 0.5)], "other": [event(9, 1.0, 1.0)] * 2}
    first, second = drawn(membership.FIGURES[1].draw, {"rules": rules})
    assert (first["title"], second["title"]) == ("one", "other")
    assert lines_of(first) == {
        "fullest server": [[0.0, 1.25], [1.0, 1.5]], "emptiest server": [[0.0, 0.75], [1.0, 0.5]],
        "even": [[0.0, 1.0], [1.0, 1.0]],
    }  # fmt: skip
    # From 0.1 below to 0.2 above, nine runs of ten.
    assert first["bands"] == [[1.15, 1.4, 1.45, 1.7], [0.4, 0.65, 0.7, 0.95]]
    assert first["names"] == ["9", "8"]
    assert first["labels"][1] == "clients of a server / mean of all servers"
    assert (first["legend"], second["labels"][1]) == ([], "")
    assert second["legend"] == ["fullest server", "emptiest server", "even"]
    assert first["limits"][1][0] == 0.0


# --- networked queues -----------------------------------------------------------------------------


def test_queue_lengths_are_lines_on_one_scale():
    both_sides = {
        "isolated": {"a": [0.0, 90.0], "b": [0.0, 3.0]},
        "networked": {"a": [0.0, 9.0], "b": [0.0, 6.0]},
    }
    data = {
        "times_s": [0.0, 1.0], "user_rate_per_s": {"a": [10.0, 50.0], "b": [10.0, 10.0]},
        "queue_length": both_sides,
    }  # fmt: skip
    rows = drawn(networked_queues_drawing.draw_queue_lengths, data)
    assert [row["title"] for row in rows] == [
        "users arriving per second", "requests waiting, isolated",
        "requests waiting, networked, same scale", "requests waiting, networked, magnified",
    ]  # fmt: skip
    assert [row["lines"]["a"][1][1] for row in rows] == [50.0, 90.0, 9.0, 9.0]
    assert [row["lines"]["b"][1] for row in rows] == [[1.0, y] for y in (10.0, 3.0, 6.0, 6.0)]
    assert rows[1]["limits"][1] == rows[2]["limits"][1] != rows[3]["limits"][1]
    assert rows[0]["legend"] == ["a", "b"]
    assert rows[3]["labels"][0] == "time, s"
    assert all(row["colors"] == rows[0]["colors"] for row in rows)


def test_acceptance_is_a_panel_for_each_cluster():
    data = {
        "times_s": [0.0, 1.0],
        "p": {"a": [1.0, 0.2], "b": [1.0, 0.4]},
        "r": {"a": [1.0, 0.6], "b": [1.0, 0.8]},
    }
    rows = drawn(networked_queues_drawing.draw_acceptance, data)
    assert [[at[1][1] for at in row["lines"].values()] for row in rows] == [[0.6, 0.2], [0.8, 0.4]]
    assert [row["labels"][1] for row in rows] == ["a", "b"]
    assert rows[0]["title"] == "P (strong) and R (pale)"
    assert rows[1]["labels"][0] == "time, s"
    assert rows[0]["limits"][1][0] == 0.0


def test_hops_are_stacked_shares():
    data = {"hops": {"a": {"0": 50, "1": 30, "2": 20}, "b": {"0": 5, "2": 5}}}
    (row,) = drawn(networked_queues_drawing.draw_hops, data)
    assert row["bars"] == {
        "1": [(0.0, 0.0, 30.0), (1.0, 0.0, 0.0)], "2": [(0.0, 30.0, 20.0), (1.0, 0.0, 50.0)],
    }  # fmt: skip
    assert row["legend"] == ["1", "2"]
    assert row["names"] == ["a", "b"]
    assert row["title"] == "forwarded requests, % of the population's"
    assert row["limits"][0] == (-0.5, 1.5)


def spread(low, middle, high):
    return {"min": low, "median": middle, "max": high}


def speedup(by):
    return {
        name: spread(1.0 * by, (2.0 + k) * by, 9.0 * by)
        for k, name in enumerate(("mean", "max", "min", "std"))
    }


def check_speedups(row, names, by):
    assert list(row["points"]) == ["mean", "max", "min", "std"] == row["legend"]
    for k, points in enumerate(row["points"].values()):
        assert [p[1:] for p in points] == [((2.0 + k) * b, 1.0 * b, 9.0 * b) for b in by]
        assert [round(p[0]) for p in points] == list(range(len(by)))
    first = [points[0][0] for points in row["points"].values()]
    assert first == sorted(first)
    assert first[0] == pytest.approx(-first[3])
    assert row["names"] == names
    assert row["scales"][1] == "log"


def test_system_times_are_ranges_and_speedups_are_whiskers():
    own = {"mean": 50.0, "std": 25.0, "min": 10.0, "max": 200.0}
    near = {"mean": 25.0, "std": 5.0, "min": 10.0, "max": 60.0}
    runs = [
        {
            "seed": 7,
            "per_cluster": {"isolated": {"a": own, "b": own}, "networked": {"a": near, "b": near}},
        }
    ]
    data = {"runs": runs, "speedup_per_cluster": {"a": speedup(1.0), "b": speedup(2.0)}}
    times, factors = drawn(networked_queues_drawing.draw_system_times, data)
    assert times["lines"]["isolated"] == [[-0.12, 10.0], [-0.12, 75.0]]
    assert times["lines"]["networked"] == [[0.12, 10.0], [0.12, 30.0]]
    others = [at for name, at in times["lines"].items() if name.startswith("_")]
    for at in (
        [[-0.12, 10.0], [-0.12, 200.0]], [[-0.12, 50.0]], [[-0.12, 200.0]],
        [[0.88, 10.0], [0.88, 75.0]], [[1.12, 25.0]], [[1.12, 60.0]],
    ):  # fmt: skip
        assert at in others
    marks = {times["styles"][name][0] for name, at in times["lines"].items() if len(at) == 1}
    assert marks == {"o", "_"}, "a dot for the mean, a dash for the longest"
    assert times["legend"] == ["isolated", "networked"]
    assert times["title"].endswith("greatest (seed 7)")
    assert times["names"] == ["a", "b"]
    assert times["scales"][1] == "log"
    check_speedups(factors, ["a", "b"], [1.0, 2.0])
    assert factors["title"] == "isolated divided by networked"


def test_larger_federations_have_a_panel_each_and_one_for_all():
    topologies = {
        name: {"speedup": speedup(by), "speedup_per_cluster": {"x": speedup(10 * by)}}
        for name, by in (("ring5", 1.0), ("chord10", 2.0), ("chord20", 3.0))
    }
    ten, twenty, all_of = drawn(networked_queues_drawing.draw_larger, {"topologies": topologies})
    check_speedups(ten, ["x"], [20.0])
    check_speedups(twenty, ["x"], [30.0])
    check_speedups(all_of, ["ring5", "chord10", "chord20"], [1.0, 2.0, 3.0])
    assert [row["title"] for row in (ten, twenty, all_of)] == [
        "chord10: isolated divided by networked", "chord20: isolated divided by networked",
        "all populations together",
    ]  # fmt: skip
