"""The paper's figures agree with each other where one follows from others."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lmassay.xray.paper_figures import CHECKPOINTS, FAMILY
from lmassay.xray.signs import xray_score
from lmassay.xray.task import FAMILY_GROUPS

BY_NAME = {c.name: c for c in CHECKPOINTS}


def test_the_eight_are_named_with_their_protocol():
    assert {c.name: c.protocol for c in CHECKPOINTS} == {
        "distilgpt2": "multi-token", "gpt2": "multi-token", "gpt2-medium": "multi-token", "gpt2-large": "multi-token",
        "pythia-70m": "first-token", "pythia-160m": "first-token", "pythia-410m": "first-token",
        "pythia-1b": "first-token",
    }  # fmt: skip


def test_of_gpt2_large_only_psi_is_published():
    assert all(name.startswith((FAMILY, "psi_")) for name in BY_NAME["gpt2-large"].figures)


@pytest.mark.parametrize("name", [c.name for c in CHECKPOINTS if "xray_score" in c.figures])
def test_the_xray_score_follows_from_the_rates(name):
    figures = BY_NAME[name].figures
    wins = [
        (round(50 * figures["real_win"]), round(50 * figures[control])) for control in ("rl_win", "mt_win", "sb_win")
    ]
    assert xray_score(wins, Fraction(str(figures["jaccard"]))) == figures["xray_score"]


@pytest.mark.parametrize("name", [c.name for c in CHECKPOINTS if FAMILY + "binder_tracking" in c.figures])
def test_groups_are_the_means_of_their_families(name):
    figures = BY_NAME[name].figures
    for group in ("logic", "compute"):
        families = [v for k, v in figures.items() if FAMILY_GROUPS.get(k.removeprefix(FAMILY)) == group]
        assert sum(families) / len(families) == pytest.approx(figures[f"psi_{group}"], abs=6e-3)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=lambda c: c.name)
def test_the_gap_is_logic_minus_compute(checkpoint):
    figures = checkpoint.figures
    assert figures["psi_gap"] == pytest.approx(figures["psi_logic"] - figures["psi_compute"], abs=1.1e-3)
