"""Which benchmarks there are, what each needs, and what is made of a session that has ended."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from spillover.model import extras
from spillover.model.errors import InputError
from spillover.tools.bench import catalog
from spillover.tools.bench.model import BenchPlan, Row, Stage

ROW = Row(case="first, quick", unit="ms", values=(1.0, 2.0))


async def measure(session):
    session.add(ROW)
    session.note("a note")
    session.details = [{"seed": session.plan.seed}]
    session.say_run("first", 0)


@pytest.fixture
def bench(monkeypatch):
    """A benchmark that measures nothing, in place of `name`."""

    def make(name):
        module = ModuleType("some_bench")
        module.STAGES = (Stage(("first, quick", "second"), measure),)
        module.REPORTED = ("second",)
        monkeypatch.setitem(sys.modules, "some_bench", module)
        monkeypatch.setitem(catalog.BENCHES, name, "some_bench")
        monkeypatch.setattr(catalog, "check_haproxy", lambda: None)

    return make


@pytest.mark.parametrize("name", catalog.BENCHES)
def test_a_benchmark_has_stages_and_tells_its_packages(bench, name):
    assert importlib.import_module(catalog.BENCHES[name]).STAGES
    bench(name)
    said = []
    result = catalog.run_bench(name, BenchPlan(seed=4, runs=2), said.append)
    assert (result.name, result.plan, result.rows) == (name, BenchPlan(seed=4, runs=2), (ROW,))
    assert (result.notes, result.details) == (("a note",), ({"seed": 4},))
    assert said == ["first: run 1 of 2"]
    assert set(result.machine["packages"]) <= set(catalog._MEASURED[name])
    assert {"uvloop", "numpy"} & set(result.machine["packages"])
    assert result.machine["cores"] >= 1


@pytest.mark.parametrize(
    ("name", "missing", "what"),
    [
        *((name, package, f"a benchmark needs the extra `{extra}`")
          for name, package, extra in (("node", "psutil", "bench"), ("peers", "aiohttp", "bench"))),
        *((name, package, f"bench {name} needs the extra `{extra}`")
          for name, package, extra in (
              ("leases", "redis", "leases"), ("queue", "redis", "leases"),
              ("node", "cryptography", "tls"), ("sim", "numba", "sim"), ("sim", "numpy", "sim"),
              ("tokens", "numba", "sim"), ("tokens", "numpy", "sim"))),
    ],
)  # fmt: skip
def test_a_package_that_is_missing_is_told_with_its_extra(bench, monkeypatch, name, missing, what):
    """Before anything runs."""
    bench(name)
    is_installed = extras.is_installed
    monkeypatch.setattr(extras, "is_installed", lambda one: one != missing and is_installed(one))
    with pytest.raises(InputError, match=f"^{missing}: {what}"):
        catalog.run_bench(name, BenchPlan(), print)


@pytest.mark.parametrize(
    ("fields", "needs", "option"),
    [
        ({"policies": ("paper",)}, {"peers"}, "--policy"),
        ({"duration_s": 1.0}, {"peers", "tokens"}, "--duration-s"),
        ({"replicas": 1}, {"tokens"}, "--replicas"),
    ],
)
@pytest.mark.parametrize("name", catalog.BENCHES)
def test_options_are_for_those_who_heed_them(bench, name, fields, needs, option):
    bench(name)
    if name in needs:
        assert catalog.run_bench(name, BenchPlan(**fields), print).rows == (ROW,)
        return
    with pytest.raises(InputError, match=f"^{option}: expected with bench "):
        catalog.run_bench(name, BenchPlan(**fields), print)


def test_a_page_is_about_cases_that_are_on_it(bench, tmp_path):
    bench("membership")
    page = tmp_path / "page.html"
    assert catalog.run_bench("membership", BenchPlan(report=page, case="second"), print).rows
    with pytest.raises(InputError, match="expected a --case that a page is on, such as 'second'"):
        catalog.run_bench("membership", BenchPlan(report=page, case="first"), print)
    bench("node")
    with pytest.raises(InputError, match="--report: expected with bench membership alone"):
        catalog.run_bench("node", BenchPlan(report=page), print)
    missing = BenchPlan(report=tmp_path / "no-such" / "page.html")
    with pytest.raises(InputError):
        catalog.run_bench("membership", missing, print)
