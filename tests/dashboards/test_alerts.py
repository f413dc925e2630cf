"""Alert rules: fit for use by Prometheus, fit to be read at three in the morning, and tested."""

import re
from pathlib import Path

import pytest
import yaml

PROMTOOL_TESTS = Path(__file__).with_name("alerts.test.yaml")


def test_prometheus_takes_the_rules(promtool, root):
    status, said = promtool("check", "rules", root / "dashboards" / "alerts.yaml")
    assert status == 0, said


def test_rules_fire_when_they_should_and_only_then(promtool):
    status, said = promtool("test", "rules", PROMTOOL_TESTS)
    assert status == 0, said


def test_each_rule_is_tested(rules):
    """By name: that it fires is expected somewhere, and that it does not, of all of them."""
    tests = yaml.safe_load(PROMTOOL_TESTS.read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tests for case in test["promql_expr_test"]]
    fired = str([case["exp_samples"] for case in cases if "exp_samples" in case])
    assert {rule["alert"] for rule in rules} == set(re.findall(r'alertname="(\w+)"', fired))
    assert any("exp_samples" not in case for case in cases)


@pytest.mark.parametrize("word", ["Means:", "Look:", "Do:"])
def test_each_rule_says_what_it_means_and_what_to_do(rules, word):
    for rule in rules:
        lines = rule["annotations"]["description"].splitlines()
        assert sum(line.startswith(word) for line in lines) == 1, rule["alert"]
