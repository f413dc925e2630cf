"""The root that models of the distributed queue are solved with: where it is, and how soon."""

from __future__ import annotations

import math

import pytest

from spillover_lab.theory.root import rising_root


class Counted:
    """How often a function was asked."""

    def __init__(self, function):
        self.function = function
        self.asked = 0

    def __call__(self, x):
        self.asked += 1
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "low", "high", "root"),
    [
        (lambda x: x**3 - 2.0, 0.0, 2.0, 2.0 ** (1 / 3)),
        (lambda x: math.exp(x) - 5.0, -3.0, 4.0, math.log(5.0)),
        (lambda x: math.atan(x - 1.0), -40.0, 60.0, 1.0),
        (lambda x: x - 1e-9, -1.0, 1.0, 1e-9),
    ],
)
def test_smooth_functions_take_a_third_of_the_steps_of_bisection(function, low, high, root):
    """To the last digits, of which bisection halves some 50 away."""
    counted = Counted(function)
    assert rising_root(counted, low, high) == pytest.approx(root, rel=1e-14, abs=1e-15)
    assert counted.asked <= 20


@pytest.mark.parametrize("jump", [-0.7, 0.0, 0.3])
def test_a_jump_is_found_by_bisection(jump):
    """No parabola helps, and two values in three are the same."""
    found = rising_root(lambda x: 1.0 if x >= jump else -1.0, -1.0, 1.0)
    assert found == pytest.approx(jump, abs=1e-15)


def test_infinite_values_are_signs_like_others():
    found = rising_root(lambda x: -math.inf if x < 0.5 else x - 0.25, 0.0, 1.0)
    assert found == pytest.approx(0.5, abs=1e-15)


def test_without_a_change_of_sign_it_is_the_end_that_is_nearer():
    assert rising_root(lambda x: x + 5.0, 0.0, 1.0) == 0.0
    assert rising_root(lambda x: x - 5.0, 0.0, 1.0) == 1.0
    assert rising_root(lambda x: x, 0.0, 1.0) == 0.0
    assert rising_root(lambda x: x - 1.0, 0.0, 1.0) == 1.0
