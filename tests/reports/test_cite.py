"""A citation: LaTeX that compiles whatever a model is called, and the hash of what is cited."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmassay.errors import LmassayError
from lmassay.reports.cite import citation, latex
from lmassay.storage.bundle import content_hash
from lmassay.storage.runs import SCORES
from outside_runs import outside_run

#: How each special character must come out.
ESCAPED = {
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def _unescaped(text):
    """The reader LaTeX is, for text without commands of its own."""
    back = {escape: plain for plain, escape in ESCAPED.items()}
    return re.sub("|".join(map(re.escape, sorted(back, key=len, reverse=True))), lambda m: back[m.group()], text)


@pytest.mark.parametrize(("plain", "escape"), ESCAPED.items())
def test_each_special_character_is_escaped(plain, escape):
    assert latex(f"a{plain}b") == f"a{escape}b"


@given(st.text(st.characters(exclude_categories=("C", "Z"))))
def test_escaped_text_reads_back_and_holds_no_bare_command(text):
    assert _unescaped(latex(text)) == text
    bare = re.sub("|".join(map(re.escape, sorted(ESCAPED.values(), key=len, reverse=True))), "", latex(text))
    assert not set(bare) & set(ESCAPED)


def test_line_breaks_and_control_characters_do_not_end_a_comment_or_a_row():
    assert latex("a\n%b\r\x1b\\input{x}") == r"a\%b\textbackslash{}input\{x\}"


def test_a_row_has_a_cell_for_each_named_column_and_ends(tmp_path):
    text = citation(outside_run(tmp_path / "run", name=r"org/my_model & co \\ 100%"))
    columns, row = text.splitlines()[:2]
    assert row.endswith(r" \\")
    cells = re.split(r"(?<!\\) & ", row.removesuffix(r" \\"))
    assert len(cells) == len(columns.split(": ")[1].split(" & "))
    assert cells[0] == r"org/my\_model \& co \textbackslash{}\textbackslash{} 100\%"
    assert row.count("{") == row.count("}")


def test_the_row_holds_the_figures_of_the_run(tmp_path):
    run = outside_run(tmp_path / "run")
    scores = json.loads((run / SCORES).read_text())["scores"]
    row = citation(run).splitlines()[1]
    assert f"${scores['xray_score']['value']}$" in row
    for name in ("real_win", "psi", "psi_excess"):
        s = scores[name]
        assert f"${s['value']:.3f}$ $[{s['low']:.3f}, {s['high']:.3f}]$" in row
    assert f"${scores['psi_excess_p']['value']:.4f}$" in row


def test_what_is_undefined_is_a_dash(tmp_path):
    from outside_runs import outside_table

    run = outside_run(tmp_path / "run", table=outside_table().filter(variant="real"))
    assert " & -- & " in citation(run).splitlines()[1]


def test_the_entry_and_the_last_line_name_the_content(tmp_path):
    run = outside_run(tmp_path / "run")
    text, digest = citation(run), content_hash(run)
    assert f"@misc{{lmassay-{digest[:12]}," in text
    assert text.count(digest) == 2
    assert text.splitlines()[-1] == f"content sha256: {digest}"
    entry = text[text.index("@misc") : text.index("\n}") + 2]
    assert entry.count("{") == entry.count("}")


def test_a_run_without_its_tables_is_not_cited(tmp_path):
    run = outside_run(tmp_path / "run")
    (run / "labels.parquet").unlink()
    with pytest.raises(LmassayError, match="bad-run-folder: .* lacks labels"):
        citation(run)
