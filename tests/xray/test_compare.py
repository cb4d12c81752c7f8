"""Runs side by side, only when they were measured alike."""

from __future__ import annotations

import json

import polars as pl
import pytest

from lmassay.errors import LmassayError
from lmassay.storage.runs import RUN, SCORES
from lmassay.xray.compare import CONVENTION, compare_runs
from made_runs import rewrite_scores
from outside_runs import outside_run, outside_table


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two methods' scores on one battery."""
    folder = tmp_path_factory.mktemp("runs")
    return [outside_run(folder / str(i), table=outside_table(seed=i), name=f"model {i}") for i in range(2)]


@pytest.fixture
def edited(runs, tmp_path):
    """A copy of the second run with fields of its identity changed."""

    def edit(path, value):
        record = json.loads((runs[1] / RUN).read_text())
        at = record["identity"]
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = value
        copy = tmp_path / "edited"
        copy.mkdir()
        for file in runs[1].iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        (copy / RUN).write_text(json.dumps(record))
        return copy

    return edit


def test_every_column_is_its_own_run(runs):
    table = compare_runs(runs)
    documents = [json.loads((run / SCORES).read_text()) for run in runs]
    assert [r["model"] for r in table["runs"]] == ["model 0", "model 1"]
    for name, cells in table["scores"].items():
        assert cells == [d["scores"][name] for d in documents]
    for family, cells in table["families"].items():
        assert cells == [d["families"][family] for d in documents]
    assert set(table["families"]) == {"sums", "words"}


def test_no_win_rate_stands_without_its_own_null(runs):
    names = list(compare_runs(runs)["scores"])
    assert {"rl_win_expected", "mt_win_expected", "psi_excess", "psi_excess_p"} <= set(names)


@pytest.mark.parametrize(("path", "name"), CONVENTION)
def test_another_convention_is_refused_by_its_field(runs, edited, path, name):
    other = edited(path, "something else")
    # A battery is told by its digest and shown by its name.
    second = r"1\.table" if name == "battery" else "something else"
    with pytest.raises(LmassayError, match=f"runs-not-comparable: .* differ in {name}: .* and {second} —"):
        compare_runs([runs[0], other])
    with pytest.raises(LmassayError, match=f"differ in {name}"):
        compare_runs([runs[0], runs[1], other])


def test_another_model_seed_or_engine_may_be_compared(runs, edited):
    assert len(compare_runs([runs[0], edited(("settings", "seed"), 4)])["runs"]) == 2


def test_other_questions_are_another_battery(runs, tmp_path):
    table = outside_table().with_columns(option_text=pl.col("option_text") + "!")
    with pytest.raises(LmassayError, match="differ in battery"):
        compare_runs([runs[0], outside_run(tmp_path / "other", table=table)])


def test_a_run_in_which_nothing_could_be_measured_neither_survives_nor_fails(runs, tmp_path):
    unmeasured = outside_run(tmp_path / "run", table=outside_table(seed=2), name="unmeasured")
    scores = json.loads((unmeasured / SCORES).read_text())
    rewrite_scores(unmeasured, scores | {"evidence": [], "survives_its_controls": None})
    found = compare_runs([runs[0], unmeasured])["runs"]
    assert [run["survival"] for run in found] == ["no", "undecided (nothing could be measured)"]


def test_a_family_only_one_run_has_is_absent_and_not_zero(runs, edited):
    other = edited(("settings", "seed"), 0)
    document = json.loads((other / SCORES).read_text())
    del document["families"]["sums"]
    rewrite_scores(other, document)
    assert compare_runs([runs[0], other])["families"]["sums"][1] is None


@pytest.mark.parametrize("count", [0, 1])
def test_one_run_is_no_comparison(runs, count):
    with pytest.raises(LmassayError, match="bad-request: compare needs two or more runs"):
        compare_runs(runs[:count])


def test_two_models_each_under_its_own_tuned_lens_may_be_compared_and_not_with_the_logit_lens(runs, edited, tmp_path):
    def under(name, lens):
        made = edited(("convention", "lens"), lens)
        made.rename(tmp_path / name)
        return tmp_path / name

    mine, theirs, other = (
        under(n, lens) for n, lens in (("a", {"tuned": "aa"}), ("b", {"tuned": "bb"}), ("c", "logit"))
    )
    table = compare_runs([mine, theirs])
    assert table["convention"]["lens"] == "tuned"
    assert [run["lens"] for run in table["runs"]] == [{"tuned": "aa"}, {"tuned": "bb"}]
    with pytest.raises(LmassayError, match="differ in lens: tuned and logit"):
        compare_runs([mine, other])
