"""Task 9 asked of a language model: what the named sentences cost, looked up or measured, and what is said of the rest."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import polars as pl
import pytest

pytest.importorskip("inspect_ai")

from chat_server import serving
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from planted_subject import Planted

from lmassay.cli import main
from lmassay.cot.board_runs import read_runs
from lmassay.cot.build.kept_costs import Cost, kept_costs, measuring
from lmassay.cot.build.prompts import Question
from lmassay.cot.compression import DELETION, KEPT, LAST_M, WHOLE
from lmassay.cot.evaluate import rescored
from lmassay.cot.finished import read_run
from lmassay.cot.monitors import run as running
from lmassay.cot.monitors.asking import Asking
from lmassay.cot.monitors.run import run_monitor
from lmassay.cot.monitors.selection import known_costs, measured_costs, prefixes_of
from lmassay.cot.monitors.settings import Items
from lmassay.errors import LmassayError
from lmassay.seeds import generator
from lmassay.storage.runs import read_record
from lmassay.storage.schema import schema

OPTIONS = ("red", "green", "blue")
M = 2


def own(question, n):
    return [f"Step {k} of {question} says {k * 7 % 5}." for k in range(n)]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Twelve questions, two prefixes each, and one too short to choose from."""
    path = tmp_path_factory.mktemp("prefixes") / "data.jsonl"
    places = [(q, n) for q in range(12) for n in (9, 11, *([6] if q == 3 else []))]
    rows = [
        {"example_id": f"q{q} 0 {n}", "split": ("train", "test")[q % 2], "question_id": f"q{q}", "label": None,
         "prompt": f"Which colour is {q}?", "cot": "\n\n".join(own(f"q{q}", n)), "rollout": 0,
         "next_sentence": f"Step {n} comes.",
         "option": [{"label": x, "text": t} for x, t in zip("ABC", OPTIONS, strict=True)]}
        for q, n in places
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def items(source):
    return Items("compression", source=source)


def mock(reply):
    def said(given, *_):
        found = ModelOutput.from_content("mockllm/model", reply(given[-1].text))
        found.usage = ModelUsage(input_tokens=10, output_tokens=2, total_tokens=12)
        return found

    return get_model("mockllm/model", custom_outputs=said, memoize=False)


def chosen(question, n):
    """What the mock names of a prefix, from 0: two sentences drawn by its question and length; nothing for question 5."""
    if question == "q5":
        return ()
    return tuple(sorted(generator(0, f"{question} {n}", "mock").choice(n - KEPT, M, replace=False).tolist()))


def names(text):
    question = text.partition("Step 0 of ")[2].partition(" ")[0]
    n = text.count("Step ")
    found = chosen(question, n)
    return json.dumps({"sentences": [i + 1 for i in found]}) if found else "I would keep all of them."


def by_hand(question, n, kept):
    """Answer and token KL of a choice, by the planted subject's formulas."""
    engine = Planted()
    return kept_costs(measuring(engine), Question(question, f"Which colour is {question[1:]}?", OPTIONS),
                      tuple(own(question, n)), f"Step {n} comes.", [kept])[kept]  # fmt: skip


@pytest.fixture
def measured(monkeypatch):
    """The subject is planted: named by --option subject=, it would be opened as a model."""
    monkeypatch.setattr(running, "_costs", lambda cells, subject: ({"subject": "0" * 64}, measured_costs(Planted())))


def ask(items, out=None, **more):
    return run_monitor(items, mock(names), Asking(m=M), out=out, **more)


def test_costs_are_the_subject_s_kl_of_the_forced_answer_and_of_the_next_sentence():
    """Against the planted distributions, written out."""
    engine, parts = Planted(), own("q1", 8)
    question = Question("q1", "Which colour is 1?", OPTIONS)
    found = kept_costs(measuring(engine), question, tuple(parts), "And so on.", [(0, 2), (), (0, 2)])
    assert set(found) == {(0, 1, 2), (0, 2), ()}
    assert found[0, 1, 2] == Cost(0.0, 0.0)

    def logs(kept):
        from lmassay.cot.build.entropy import forced
        from lmassay.cot.build.workshop import Workshop

        text = " ".join([parts[i] for i in kept] + parts[3:])
        found = np.array(engine.logs(forced(Workshop(engine, None, (), {}, 0), question.text(), text), "ABC").low)
        return found - np.log(np.exp(found).sum())

    p = logs((0, 1, 2))
    for kept in ((0, 2), ()):
        q = logs(kept)
        assert found[kept].answer_kl == pytest.approx(float((np.exp(p) * (p - q)).sum()))
        lost = len(" ".join(parts)) - len(" ".join([parts[i] for i in kept] + parts[3:]))
        assert found[kept].token_kl == lost


def test_without_the_next_sentence_there_is_no_token_kl():
    found = kept_costs(measuring(Planted()), Question("q1", "Which?", OPTIONS), tuple(own("q1", 7)), None, [()])
    assert found[()].token_kl is None
    assert found[()].answer_kl > 0


def test_prefixes_are_read_with_their_sentences_whatever_their_split(items):
    found = {(p.question.id, len(p.own)): p for p in prefixes_of(items.load())}
    assert len(found) == 25
    one = found["q3", 9]
    assert list(one.own) == own("q3", 9)
    assert one.question == Question("q3", "Which colour is 3?", OPTIONS)
    assert (one.region, one.following, one.rollout) == (4, "Step 9 comes.", 0)


def test_a_selection_is_scored_by_what_keeping_only_the_named_sentences_costs(items, measured, tmp_path):
    found = ask(items, tmp_path / "run")
    mine = found.cells.filter(pl.col("selector").str.starts_with("monitor"))
    assert mine.height == 24
    expected = {}
    for row in mine.to_dicts():
        question, n = row["question"], row["prefix_length"]
        kept = chosen(question, n)
        assert row["indices"] == (list(kept) or None)
        cost = by_hand(question, n, kept)
        assert row["answer_kl"] == pytest.approx(cost.answer_kl, abs=1e-12)
        assert row["token_kl"] == cost.token_kl
        expected.setdefault(question, []).append(cost.answer_kl)
    scores = found.document["scores"]
    # Questions first.
    assert scores["all.answer_kl"]["value"] == pytest.approx(np.mean([np.mean(v) for v in expected.values()]))
    parsed = [np.mean(v) for q, v in expected.items() if q != "q5"]
    assert scores["all.answer_kl_parsed"]["value"] == pytest.approx(np.mean(parsed))
    assert (scores["all.answer_kl"]["n"], scores["all.answer_kl_parsed"]["n"]) == (24, 22)
    assert scores["all.unparsed"]["value"] == pytest.approx(2 / 24)
    counts = found.document["counts"]["all"]
    assert counts["statuses"] == {"ok": 22, "unparsed": 2, "too short": 1}
    assert counts["n_total"] == 25 == counts["n_scored"] + counts["n_undecided"]
    assert {row["control"] for row in found.document["evidence"]} == {DELETION, LAST_M}
    record = read_record(tmp_path / "run")
    jsonschema.validate(record, schema("cot_run"))
    jsonschema.validate(found.document, schema("cot_scores"))
    assert record["status"] == "done"
    assert record["identity"]["method"]["answers"] == "sentences"


def test_a_reply_that_names_nothing_counts_as_keeping_nothing(items, measured):
    cells = ask(items).cells.filter(pl.col("question") == "q5")
    for n in (9, 11):
        rows = {r["selector"].partition("_")[0]: r for r in cells.filter(prefix_length=n).to_dicts()}
        assert rows["monitor"]["answer_kl"] == rows["deletion"]["answer_kl"] == by_hand("q5", n, ()).answer_kl
        assert rows["last"]["answer_kl"] == by_hand("q5", n, tuple(range(n - KEPT - M, n - KEPT))).answer_kl
        assert rows["baseline"]["answer_kl"] == 0


def test_a_finished_run_is_read_and_rescored_without_asking(items, measured, tmp_path):
    found = ask(items, tmp_path / "run")
    again = run_monitor(items, mock(lambda _: pytest.fail("asked")), Asking(m=M), out=tmp_path / "run")
    assert again.document == found.document
    assert again.cells.equals(found.cells)
    assert rescored(tmp_path / "run", read_record(tmp_path / "run")) == json.loads(json.dumps(found.document))
    with pytest.raises(LmassayError, match="selections of sentences, which have no threshold"):
        read_runs([tmp_path / "run"], paired_regimes=False)
    with pytest.raises(LmassayError, match="selections of sentences, not predictions"):
        read_run(tmp_path / "run")


def write_cells(path, choices):
    """Cells as `cot generate compression` writes them: whole, nothing, and these choices of every prefix."""
    rows = []
    for q in range(12):
        for n in (9, 11):
            region = n - KEPT
            for selector, m, kept in ((WHOLE, region, None), (DELETION, 0, None), *choices(f"q{q}", n)):
                cost = by_hand(f"q{q}", n, tuple(kept) if kept is not None else tuple(range(m)))
                rows.append(
                    {"question": f"q{q}", "prefix_length": n, "n_region": region, "m": m, "selector": selector,
                     "indices": kept, "answer_kl": cost.answer_kl, "token_kl": cost.token_kl, "floored_mass": 0.0,
                     "rollout": 0}
                )  # fmt: skip
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)


def test_costs_that_others_measured_of_the_same_sentences_are_looked_up_and_the_rest_is_not_guessed(items, tmp_path):
    """Of the shorter prefixes somebody else made the same choice."""

    def others(question, n):
        last = list(range(n - KEPT - M, n - KEPT))
        same = [("random", M, list(chosen(question, n)))] if n == 9 and chosen(question, n) else []
        return [(LAST_M, M, last), *same]

    write_cells(tmp_path / "cells.parquet", others)
    found = ask(items, cells=tmp_path / "cells.parquet")
    mine = found.cells.filter(pl.col("selector").str.starts_with("monitor"))
    for row in mine.to_dicts():
        question, n, kept = row["question"], row["prefix_length"], tuple(row["indices"] or ())
        last = tuple(range(n - KEPT - M, n - KEPT))
        if n == 9 or not kept or kept == last:
            assert row["answer_kl"] == by_hand(question, n, kept).answer_kl
        else:
            assert row["answer_kl"] is None
    counts = found.document["counts"]["all"]["statuses"]
    assert counts["not measured"] == mine["answer_kl"].null_count() > 5
    assert found.document["scores"]["all.answer_kl"]["n"] == 24 - counts["not measured"]
    assert any("answer_kl is missing in" in notice for notice in found.document["notices"])


def test_choices_nobody_measured_leave_the_figure_undefined(items, tmp_path):
    write_cells(tmp_path / "cells.parquet", lambda *_: [])
    keeping = mock(lambda text: '{"sentences": [1, 2]}')
    found = run_monitor(items, keeping, Asking(m=M), cells=tmp_path / "cells.parquet")
    figure = found.document["scores"]["all.answer_kl"]
    assert figure["value"] is None
    assert figure["status"] == "undefined: nobody measured what these sentences cost"
    assert not found.document["survives_its_controls"]
    jsonschema.validate(found.document, schema("cot_scores"))


def test_known_costs_do_not_depend_on_the_order_of_indices(items, tmp_path):
    cells = pl.DataFrame(
        {"question": ["q0"], "rollout": [0], "prefix_length": [9], "m": [2], "indices": [[3, 0]], "answer_kl": [0.5],
         "token_kl": [None]}
    )  # fmt: skip
    prefix = next(p for p in prefixes_of(items.load()) if p.question.id == "q0" and len(p.own) == 9)
    assert known_costs(cells)(prefix, [(0, 3), (1, 2)]) == {(0, 3): Cost(0.5, None)}


def test_a_slice_of_prefixes_is_asked_about_whatever_their_split(items, measured):
    found = ask(items, limit=4)
    assert found.document["counts"]["all"]["n_total"] == 8
    assert found.document["identity"]["settings"] == {"seed": 0, "test_cap": 4}


@pytest.mark.parametrize(
    ("asking", "said"),
    [(Asking(m=50), "no prefix has 50 sentences"), (Asking(samples=2), "no average"), (Asking(shots=1), "no right answers")],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(items, measured, asking, said):
    with pytest.raises(LmassayError, match=said):
        run_monitor(items, mock(names), asking)


def test_it_is_a_command_with_the_cells_that_lie_beside_the_data(source, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SERVED_API_KEY", "any")
    folder = tmp_path / "built"
    folder.mkdir()
    data = folder / "data.jsonl"
    data.write_text(source.read_text())

    def command(*words):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, words)])
        return ended.value.code, capsys.readouterr()

    with serving(lambda body, n: names(body["messages"][-1]["content"])) as server:
        words = ["cot", "run", "9", "--source", data, "--method", "monitor", "--monitor-model", "openai-api/served/model",
                 "--option", "m=2", "--option", f"base_url={server.url}", "--out", tmp_path / "run"]  # fmt: skip
        code, printed = command(*words)
        assert code == 2
        assert "nobody can say what the sentences that are named cost" in printed.err
        assert not server.asked
        write_cells(folder / "cells.parquet", lambda q, n: [(LAST_M, M, list(range(n - KEPT - M, n - KEPT)))])
        code, printed = command(*words)
        assert not code
        assert "all.unparsed" in printed.out
        assert len(server.answered) == 24
    for name in ("show", "rescore"):
        code, _ = command(name, tmp_path / "run")
        assert not code
