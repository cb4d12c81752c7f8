"""The paper's three models from their seven rates."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lmassay.xray.signs import xray_score


def _against(real, *controls):
    return [(real, control) for control in controls]


@pytest.mark.parametrize(
    ("model", "rates", "jaccard", "expected"),
    [
        ("distilgpt2", (25, 33, 31, 24), ".64", 0),
        ("gpt2", (23, 34, 39, 26), ".53", -2),
        ("gpt2-medium", (32, 40, 40, 34), ".46", -4),
    ],
)
def test_the_papers_rates_give_the_papers_scores(model, rates, jaccard, expected):
    assert xray_score(_against(*rates), Fraction(jaccard)) == expected


def test_equal_counts_and_a_jaccard_of_one_half_count_nothing():
    assert xray_score(_against(20, 20, 20, 20), Fraction(1, 2)) == 0


def test_a_perfect_model_scores_four():
    assert xray_score(_against(50, 10, 20, 49), Fraction(51, 100)) == 4
