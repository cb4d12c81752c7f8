"""``lmassay cot analyse`` on a small release made by hand."""

from __future__ import annotations

import json
import math

import polars as pl
import pytest
from made_release import entropy, made, write_checkout

from lmassay.cli import main
from lmassay.cot.published import import_published


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("release")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMASSAY_CACHE", str(root / "cache"))
        import_published(write_checkout(root / "checkout", made()))
        yield root


def _command(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return stop.value.code, capsys.readouterr()


def test_task_8_is_analysed_to_table_csv_and_figure(store, tmp_path, capsys):
    status, out = _command(capsys, "cot", "analyse", "8", "--csv", tmp_path / "e.csv", "--figure", tmp_path / "e.svg")
    assert status == 0
    for shown in ("answer_entropy, layout head", "ood_test_3", "between_questions"):
        assert shown in out.out
    table = pl.read_csv(tmp_path / "e.csv")
    spreads = [{"A": 1 - i / 16, "B": i / 16} for i in range(8)]
    mean = table.filter(split="train", figure="mean")["value"][0]
    assert mean == pytest.approx(math.fsum(entropy(s) for s in spreads) / 8, abs=1e-12)
    assert (tmp_path / "e.svg").stat().st_size > 1000
    status, out = _command(capsys, "cot", "analyse", "answer_entropy", "--json")
    assert status == 0
    assert json.loads(out.out)["splits"]["train"]["mean"]["value"] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        # The made release has prefixes shorter than the five sentences that are always kept.
        (("9",), "keeps"),
        (("3",), "is a task for methods"),
        (("10",), "unknown-task"),
        (("8", "--figure", "e.pdf"), "cannot be written"),
        (("8", "--layout", "old"), "no layout"),
    ],
)
def test_what_cannot_be_analysed_is_one_line(store, capsys, words, message):
    status, out = _command(capsys, "cot", "analyse", *words)
    assert status in (2, 3)
    assert message in out.err
    assert out.err.count("\n") == 1
    assert not out.out
