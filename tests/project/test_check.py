"""Checkpoints pass with one line and fail with both sides."""

import math

import numpy as np
import pytest
import torch

from migrate_kit import check
from migrate_kit.results import Finding, Result


class Verdict(Result):
    def __init__(self, *findings):
        self.findings = list(findings)

    def __repr__(self):
        return "Verdict()"


PASS = [
    lambda: check.true([0], "a list with something in it"),
    lambda: check.equal((1, "a"), (1, "a")),
    lambda: check.close(1.0, 1.05, within=0.1),
    lambda: check.close(torch.ones(3, dtype=torch.bfloat16, requires_grad=True), np.ones(3), 0),
    lambda: check.close([math.inf, -math.inf], [math.inf, -math.inf], within=0),
    lambda: check.close(torch.tensor([1j]), np.array([1j]), within=0),
    lambda: check.close([], [], within=0),
    lambda: check.at_most(2, 2),
    lambda: check.at_least(2, 2),
    lambda: check.contains("conv1", "conv"),
    lambda: check.ok(Verdict(Finding("warning", "odd"))),
    lambda: check.raises(KeyError, lambda: {}["x"], "x"),
]
FAIL = [
    (lambda: check.true([], "a list with something in it"), "a list with something in it"),
    (lambda: check.equal(1, 2, "count"), r"count[\s\S]*expected: 2[\s\S]*found:    1"),
    (lambda: check.close(1.0, 1.2, within=0.1), r"apart by 0\.2, at most 0\.1"),
    (lambda: check.close([1, 2], [1, 2, 3], within=1), r"shape \(3,\)[\s\S]*shape \(2,\)"),
    (lambda: check.close([1.0], [math.nan], within=9), "apart by nan"),
    (lambda: check.close([math.nan], [math.nan], within=9), "apart by nan"),
    (lambda: check.close([math.inf], [-math.inf], within=9), "apart by inf"),
    (lambda: check.close(torch.tensor([1j]), np.array([2j]), within=0.5), "apart by 1"),
    (lambda: check.at_most(2.1, 2, "R"), "at most 2"),
    (lambda: check.at_most(math.nan, 2), "nan"),
    (lambda: check.at_least(math.nan, 2), "nan"),
    (lambda: check.contains(["conv1"], "bn1"), "'bn1' in it"),
    (lambda: check.ok(Verdict(Finding("error", "bad", "fc"))), r"not ok: bad \(fc\)"),
    (lambda: check.raises(KeyError, lambda: 5), "it returned 5"),
    (lambda: check.raises(KeyError, lambda: {}["x"], "y"), "'y' in its text"),
]


@pytest.mark.parametrize("call", PASS)
def test_passes(call):
    passed = call()
    assert repr(passed) == passed
    assert passed.startswith("✓ ")
    assert "\n" not in passed


@pytest.mark.parametrize(("call", "text"), FAIL)
def test_fails(call, text):
    with pytest.raises(AssertionError, match=text):
        call()


def test_another_exception_comes_through():
    with pytest.raises(ZeroDivisionError):
        check.raises(KeyError, lambda: 1 / 0)


def test_arrays_are_sent_to_the_right_check():
    with pytest.raises(TypeError, match=r"check\.close"):
        check.equal(np.ones(2), np.ones(2))
