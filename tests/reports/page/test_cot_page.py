"""The page of a cot run: what its sentences say is in its numbers, and odd runs get sentences instead of figures."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "cot")]
from made_extraction import write_data, write_reader
from made_runs_of_cot import Certain, Constant, Counts, evaluated, made_data
from test_compression import made_records
from test_own_cells import made_cells

from lmassay.cli import main
from lmassay.cot.compression import cells_of
from lmassay.cot.evaluate import evaluate
from lmassay.cot.leaderboard import leaderboard
from lmassay.errors import LmassayError
from lmassay.examples import VisibleExample
from lmassay.methods.held_activations import word_states
from lmassay.methods.linear import Linear
from lmassay.models.open import open_tokenizer
from lmassay.reports.cot_figures import CotRun, prediction_rows, read_cot_run
from lmassay.reports.cot_method_charts import prediction_panels
from lmassay.reports.page import cot_examples
from lmassay.reports.page.cot import cot_page
from lmassay.reports.page.cot_audit import audit_section
from lmassay.reports.page.cot_compression import compression_section
from lmassay.reports.page.cot_parts import count_section, question_section, transfer_section
from lmassay.reports.page.cot_runs import cot_overview, section_of
from lmassay.reports.page.draw import drawn
from lmassay.reports.page.opened import open_run
from lmassay.reports.page.parts import Chart, Table
from lmassay.reports.page.words import number, status_words
from lmassay.reports.page.write import report_html, write_report
from lmassay.reports.terminal_maps import print_cot_maps
from lmassay.storage.activations import ActivationStore
from lmassay.storage.fingerprint import file_sha256
from lmassay.storage.runs import COMPRESSION, PREDICTIONS, RUN, SCORES
from made_runs import changed, rewrite_scores


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A run of each kind of method and task."""
    root = tmp_path_factory.mktemp("runs")
    made = {
        "counts": (Counts, {}), "certain": (Certain, {}), "constant": (Constant, {}),
        "regression": (Counts, {"kind": "regression", "ood": ("ood_1", "ood_2")}),
        "interventional": (Counts, {"kind": "interventional", "ood": ()}),
    }  # fmt: skip
    for name, (method, how) in made.items():
        evaluated(method, out=root / name, **how)
    return root


def sections(page):
    return {section.id: section for section in page.sections}


def parts(page):
    return [part for section in page.sections for part in section.parts]


@pytest.mark.parametrize("name", ["counts", "certain", "constant", "regression", "interventional"])
def test_every_part_has_a_reading_a_download_and_an_id_of_its_own(folders, name):
    page = cot_page(open_run(folders / name))
    every = parts(page)
    assert len({part.id for part in every}) == len(every)
    assert len({p.id for p in [*every, *page.sections]}) == len(every) + len(page.sections)
    for part in every:
        assert part.reading.strip().endswith(".")
        assert part.rows.width
        assert "nan" not in part.reading
        assert "None" not in part.reading
    for section in page.sections:
        assert section.parts or section.intro
    assert page.status == "done"
    assert page.evidence == json.loads((folders / name / SCORES).read_text())["evidence"]


@pytest.mark.parametrize("name", ["counts", "certain", "regression"])
def test_every_chart_is_drawn(folders, name):
    charts = [part for part in parts(cot_page(open_run(folders / name))) if isinstance(part, Chart)]
    assert len(charts) >= 3
    for part in charts:
        assert drawn(part.chart, "p").startswith("<svg")


def test_the_first_figures_sentence_has_value_interval_n_and_the_best_control(folders):
    page = cot_page(open_run(folders / "counts"))
    scores = json.loads((folders / "counts" / SCORES).read_text())
    reading = sections(page)["id-ood"].parts[0].reading
    for split in ("test", "ood_test"):
        e = scores["scores"][f"{split}.g_mean2"]
        assert (
            f"{number(e['value'])} [{number(e['low'])}, {number(e['high'])}] (n = 80, {e['n_clusters']} questions)"
            in reading
        )
        best = max((s[f"{split}.g_mean2"]["value"] or 0, name) for name, s in scores["controls"].items())
        assert f"{best[1]}, {number(best[0])}" in reading
    assert page.headline.startswith("counts: g-mean² ")


def test_the_evidence_gets_words(folders):
    page = cot_page(open_run(folders / "counts"))
    assert page.signals["ood_test.auroc"] == "AUROC out of distribution (ood_test)"
    assert {row["control"] for row in page.evidence} <= set(page.signals)


def test_what_is_not_there_is_said(folders):
    constant = sections(cot_page(open_run(folders / "constant")))
    assert "undefined: validation gives no threshold" in constant["thresholds"].intro
    assert "decides nothing" in constant["by-question"].intro
    plain = sections(cot_page(open_run(folders / "counts")))
    assert "no probabilities (they run from" in plain["calibration"].intro
    assert "`lmassay cot audit made --json > audit.json`" in plain["audit"].intro
    assert not {"ranking", "thresholds"} & set(sections(cot_page(open_run(folders / "regression"))))


def test_a_probability_gets_its_reliability_with_how_far_it_is_off(folders):
    (part,) = sections(cot_page(open_run(folders / "certain")))["calibration"].parts
    mine = part.rows.filter(split="test")
    off = sum(abs(a - b) * n for a, b, n in mine.select("score", "share", "n").rows()) / 80
    assert f"(test) score and share of positives differ by {number(off)} on average over 80 rows" in part.reading


def test_a_regression_is_predicted_against_true(folders):
    (part,) = sections(cot_page(open_run(folders / "regression")))["calibration"].parts
    run = read_cot_run(folders / "regression")
    table = run.predictions.filter(method_id="counts", split="test")
    bias = float((table["score"] - table["y_true"]).mean())
    assert f"predictions {number(abs(bias))} too {'high' if bias > 0 else 'low'}" in part.reading
    assert part.rows.height == 240


def test_the_table_of_scores_holds_every_score_of_every_method(folders):
    run = read_cot_run(folders / "counts")
    (table,) = sections(cot_page(open_run(folders / "counts")))["all-scores"].parts
    assert table.rows.height == len(run.document["scores"]) + sum(map(len, run.document["controls"].values()))


def test_counts_add_up_to_the_rows_that_were_shown(folders):
    table = sections(cot_page(open_run(folders / "counts")))["rows"].parts[0]
    assert table.rows["rows"].sum() == 240
    assert "scored 240 of 240 rows" in table.reading


@pytest.mark.parametrize(("status", "said"), [("failed", "failed part-way"), ("running", "not finished")])
def test_a_run_that_is_not_done_is_shown_and_marked(folders, tmp_path, status, said):
    run = tmp_path / "run"
    shutil.copytree(folders / "counts", run)
    (run / SCORES).unlink()
    changed(run, lambda record: record.update(status=status))
    page = cot_page(open_run(run))
    assert said in page.status
    assert page.survives is None
    assert not page.evidence
    assert page.about


def test_an_altered_run_is_refused(folders, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folders / "counts", run)
    pl.read_parquet(run / PREDICTIONS).with_columns(score=pl.lit(1.0)).write_parquet(run / PREDICTIONS)
    with pytest.raises(LmassayError, match="not the table this run wrote"):
        cot_page(open_run(run))


AUDIT = {
    "name": "made", "fingerprint": "x", "max_auroc": 0.6, "n_tests": 40,
    "findings": [{"severity": "leak", "check": "feature", "subject": "<b>words</b>", "what": "AUROC .90 test*"}],
    "figures": [
        {"feature": "cot: words", "seen": "visible", "split": "test", "scope": "all", "auroc": 0.9, "low": 0.8, "high": 0.95,
         "strength_low": 0.7, "g_mean2": None, "n": 80, "n_questions": 12}
    ],
}  # fmt: skip


def test_an_audit_in_the_folder_is_shown_and_one_of_other_data_says_so(folders, tmp_path):
    identity = json.loads((folders / "counts" / RUN).read_text())["identity"]
    (tmp_path / "audit.json").write_text(json.dumps(AUDIT))
    section = audit_section(tmp_path, identity)
    assert "sha256 x; the run's data has" in section.intro
    findings, features = section.parts
    assert "1 leak" in findings.reading
    assert "AUROC .90 on test (n = 80, 12 questions)" in features.reading
    (tmp_path / "audit.json").write_text(json.dumps(AUDIT | {"fingerprint": identity["task"]["sha256"]}))
    assert audit_section(tmp_path, identity).intro == "From audit.json in the run folder."


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"findings": 3}', json.dumps(AUDIT | {"findings": [{}]}), "[" * 100_000]
)
def test_a_file_that_is_no_audit_is_not_shown(text, folders, tmp_path):
    identity = json.loads((folders / "counts" / RUN).read_text())["identity"]
    (tmp_path / "audit.json").write_text(text)
    section = audit_section(tmp_path, identity)
    assert not section.parts
    assert "is no audit" in section.intro


def test_compression_curves_come_from_the_table_of_cells(tmp_path):
    cells = cells_of(made_records())
    cells.write_parquet(tmp_path / COMPRESSION)
    section = compression_section(tmp_path, 0)
    curves = section.parts[0]
    kl = cells.filter(selector="monitor").group_by("question").agg(pl.col("answer_kl").mean())["answer_kl"].mean()
    assert f"monitor has the least answer KL, {number(kl, 3)}" in curves.reading
    assert {"monitor", "last_m", "deletion"} <= set(curves.rows["selector"])
    assert drawn(curves.chart, "p").startswith("<svg")
    pl.DataFrame({"m": [1]}).write_parquet(tmp_path / COMPRESSION)
    with pytest.raises(LmassayError, match="does not have the columns"):
        compression_section(tmp_path, 0)


def test_evidence_of_selectors_has_the_pages_words_and_tenths_count_from_one(tmp_path):
    made_cells().write_parquet(tmp_path / COMPRESSION)
    parts = {part.id: part for part in compression_section(tmp_path, 0).parts}
    evidence = parts["compression-evidence"].rows
    assert {"signal's value", "control's value", "p (Holm)", "questions"} <= set(evidence.columns)
    assert not any("_" in name for name in evidence.columns)
    assert all(name.startswith(("answer KL of ", "token KL of ")) for name in evidence["signal"])
    assert set(evidence["control"]) <= {"keeping none", "keeping the sentences just before the last"}
    tenths = parts["places"].rows["tenth"]
    assert (tenths.min(), tenths.max()) == (1, 10)


def test_what_a_sentence_does_alone_is_a_mean_of_question_means(tmp_path):
    cells = made_cells()
    cells.write_parquet(tmp_path / COMPRESSION)
    part = next(p for p in compression_section(tmp_path, 0).parts if p.id == "singles")
    key = ["question", "rollout", "prefix_length"]
    none = {tuple(r[k] for k in key): r["answer_kl"] for r in cells.filter(selector="deletion").to_dicts()}
    effects: dict[str, list[float]] = {}
    for r in cells.filter(selector="baseline").to_dicts():
        effects.setdefault(r["question"], []).extend(none[tuple(r[k] for k in key)] - kl for kl in r["single_kl"])
    mean = sum(sum(v) / len(v) for v in effects.values()) / len(effects)
    assert f"takes {number(mean, 3)} nats off" in part.reading
    assert f"n = {sum(map(len, effects.values())):,} sentences, 11 questions" in part.reading


def test_runs_of_several_methods_make_a_leaderboard_and_others_say_why_not(folders):
    opened = [open_run(folders / name) for name in ("counts", "certain", "constant")]
    section = cot_overview(opened, ["a", "b", "c"])
    table = section.parts[0]
    board = leaderboard([folders / name for name in ("counts", "certain", "constant")])
    assert table.rows["row"].to_list() == [row.label for row in board.rows]
    for row in table.rows.to_dicts():
        (cell,) = board.cells.filter(row=row["row"], figure="g_mean2", part="id").to_dicts()
        shown = row["made ID"]
        assert (
            shown == status_words(cell["status"]) if cell["value"] is None else shown.startswith(number(cell["value"]))
        )
    assert "choose the threshold anew" in table.note
    other = cot_overview([open_run(folders / name) for name in ("counts", "interventional")], ["a", "b"])
    assert not other.parts
    assert "do not stand in one table" in other.intro
    assert cot_overview(opened[:1], ["a"]) is None
    assert section_of(leaderboard([folders / "counts"])).parts


def test_the_tokens_shown_are_those_of_the_highest_the_lowest_and_the_nearest_score(tmp_path):
    data = made_data()
    store = word_states(x for s in data.splits.values() for x in s.examples)
    probe = Linear()
    probe.activations = store
    evaluate(data, probe, out=tmp_path / "run")
    keys = [int(k) for k in data["test"].examples.keys[:20]]
    score = dict(zip(keys, probe.score(data["test"].examples[:20]).tolist(), strict=True))
    chosen = {why: key for why, _, key in cot_examples._chosen(probe, [("test", key) for key in keys], 0.0)}
    assert chosen["highest score"] == max(keys, key=score.get)
    assert chosen["lowest score"] == min(keys, key=score.get)
    nearest = min(keys, key=lambda k: abs(score[k]))
    assert nearest in chosen.values()
    assert "is not shown" in sections(cot_page(open_run(tmp_path / "run")))["examples"].intro


@pytest.mark.tiny
def test_a_probes_tokens_are_its_examples_and_their_weights_its_contributions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, reader = write_data(tmp_path / "data.jsonl", n=60), write_reader(tmp_path / "reader")
    for words in (
        ["activations", "1", "--model", reader, "--source", data, "--blocks", "2", "--token-blocks", "2", "--out", "acts"],
        ["run", "1", "--source", data, "--method", "linear", "--activations", "acts", "--option", "poolings=mean",
         "--out", "run"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as stop:
            main(["cot", *map(str, words)])
        assert not stop.value.code
    part = next(p for p in parts(cot_page(open_run(Path("run")))) if p.id == "tokens")
    store = ActivationStore(Path("acts"))
    tokenizer = open_tokenizer("reader").hf
    probe = Linear.load(Path("run") / "method", store)
    assert 2 <= len(part.examples) <= 3
    for example in part.examples:
        key = int(example.heading.rpartition(" ")[2])
        assert [text for text, _ in example.pieces] == [tokenizer.decode([int(i)]) for i in store.token_ids(key)]
        found = probe.contributions(VisibleExample(key, ()))
        assert [w for _, w in example.pieces] == pytest.approx(found.values.tolist())
        assert f"score {number(found.score, 3)}" in example.facts
    shutil.rmtree("reader")
    assert (
        "the tokenizer of reader is not on this machine" in sections(cot_page(open_run(Path("run"))))["examples"].intro
    )


def test_what_a_language_model_replied_is_counted(folders):
    run = read_cot_run(folders / "counts")
    share = {
        "value": 0.25,
        "low": 0.1,
        "high": 0.4,
        "n": 80,
        "title": "share of replies that say nothing",
        "status": "ok",
    }
    found = {"unparsed_replies": share, "reasons": {"no number": 12, "refused": 8}}
    asked = CotRun(run.record, {**run.document, "monitor": {"test": found, "ood_test": found}}, run.predictions)
    table = count_section(asked).parts[1]
    assert "no number (24), refused (16)" in table.reading
    assert table.rows["value"].to_list() == [0.25, 0.25]


def test_a_run_of_selections_has_its_curves_and_no_predictions(folders, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folders / "counts", run)
    (run / PREDICTIONS).unlink()
    cells_of(made_records()).write_parquet(run / COMPRESSION)
    document = json.loads((run / SCORES).read_text())
    kl = {"value": 0.2, "low": 0.1, "high": 0.3, "n": 30, "n_clusters": 12, "title": "KL of the answer", "status": "ok"}
    row = document["evidence"][0] | {"signal": "answer_kl.monitor", "control": "last_m", "metric": "kl"}
    document |= {"scores": {"all.answer_kl": kl}, "controls": {"last_m": {"all.answer_kl": kl}}, "evidence": [row]}
    document["identity"]["task"]["kind"] = "selection"
    rewrite_scores(run, document)
    changed(run, lambda record: record["identity"]["task"].update(kind="selection"))
    changed(run, lambda record: record.update(tables={COMPRESSION: file_sha256(run / COMPRESSION)}))
    page = cot_page(open_run(run))
    assert page.headline == "counts: answer KL .20 [.10, .30] over all prefixes (n = 30, 12 questions)."
    assert page.signals["answer_kl.monitor"] == "answer KL of monitor"
    assert [section.id for section in page.sections] == ["selections", "audit", "all-scores", "rows"]
    assert cot_overview([open_run(run)] * 2, ["a", "b"]) is None
    print_cot_maps(document)


def test_at_least_half_of_the_questions_have_what_the_sentence_says(folders):
    run = read_cot_run(folders / "counts")
    (part,) = question_section(run).parts
    for split in ("test", "ood_test"):
        share = part.rows.filter(split=split)["right"].to_list()
        said = float(
            part.reading.split(f"{split}: of {len(share)} questions")[1].split("at least half have ")[1].split()[0]
        )
        assert sum(s >= said - 0.005 for s in share) >= len(share) / 2
        assert sum(s > said + 0.005 for s in share) <= len(share) / 2


def test_marks_of_one_row_each_need_no_legend_of_sizes(folders):
    few = prediction_rows(read_cot_run(folders / "regression"), "counts")
    assert set(few["n"]) == {1}
    assert ">rows<" not in drawn(prediction_panels(few), "p")
    many = few.with_columns(n=pl.int_range(1, pl.len() + 1))
    assert ">rows<" in drawn(prediction_panels(many), "p")


def test_many_questions_are_drawn_in_part_and_the_note_says_so(folders):
    run = read_cot_run(folders / "counts")
    many = run.predictions.with_columns(group=pl.int_range(pl.len()))
    frame = pl.concat([many.with_columns(group=pl.col("group") + i * many.height) for i in range(16)])
    big = type(run)(run.record, run.document, frame)
    (part,) = question_section(big).parts
    assert part.rows.height <= 2000
    assert "2,560 questions are drawn" in part.note


def test_figures_of_one_class_are_undefined_and_the_page_stands(folders, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folders / "counts", run)
    document = json.loads((run / SCORES).read_text())
    for scores in (document["scores"], *document["controls"].values()):
        for e in scores.values():
            e |= {"value": None, "low": None, "high": None, "status": "undefined: one class"}
    rewrite_scores(run, document)
    page = cot_page(open_run(run))
    assert "undefined: one class" in page.headline
    assert not sections(page)["id-ood"].parts
    assert transfer_section(read_cot_run(run)).intro
    assert all(part.rows.width for part in parts(page))


def test_worst_rows_are_folded_and_say_where_all_are(folders):
    table = next(part for part in parts(cot_page(open_run(folders / "counts"))) if part.id == "wrong")
    assert isinstance(table, Table)
    run = read_cot_run(folders / "counts")
    mine = run.predictions.filter(pl.col("method_id") == "counts", pl.col("split").is_in(["test", "ood_test"]))
    wrong = int((mine["decision"].cast(pl.Float64) != mine["y_true"]).sum())
    assert table.n_total == wrong
    assert table.whole == PREDICTIONS
    assert f"decides {wrong} of 160 rows wrongly" in table.reading


def test_a_text_methods_words_stand_with_their_weights_and_say_how_many_there_are(tmp_path):
    evaluate(made_data(n=80), "tfidf", out=tmp_path / "run")
    choices = json.loads((tmp_path / "run" / RUN).read_text())["choices"]["tfidf"]
    table = next(part for part in parts(cot_page(open_run(tmp_path / "run"))) if part.id == "terms")
    assert sorted(table.rows.rows()) == sorted(tuple(row) for row in choices["terms"])
    assert (table.n_total, table.whole) == (choices["n_features"], RUN)
    _, term, weight = max(choices["terms"], key=lambda row: abs(row[2]))
    side = "speaks for the positive class" if weight > 0 else "speaks against it"
    assert f"«{term}»" in table.reading
    assert table.reading.endswith(f"it {side}.")
    regression = evaluate(made_data("regression", n=80), "tfidf", out=tmp_path / "regression")
    assert regression.document["identity"]["task"]["kind"] == "regression"
    table = next(part for part in parts(cot_page(open_run(tmp_path / "regression"))) if part.id == "terms")
    assert "the score." in table.reading or "lowers it." in table.reading


@pytest.mark.slow
def test_fifty_thousand_predictions_stay_under_15_megabytes(tmp_path):
    evaluate(made_data(n=2800, n_questions=600), "length", out=tmp_path / "run")
    assert pl.scan_parquet(tmp_path / "run" / PREDICTIONS).select(pl.len()).collect().item() >= 40_000
    write_report([tmp_path / "run"], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 15_000_000


class Tags(HTMLParser):
    """Tags and attributes that a browser would see, and the text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text = Counter(), set(), ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \u202e\x1b[31m"


def test_ids_names_and_notices_of_a_hostile_run_are_text(folders, tmp_path):
    class Named(Counts):
        id = f"counts {HOSTILE}"

    evaluate(made_data(n=60, canary=HOSTILE), Named, out=tmp_path / "run")
    (tmp_path / "run" / "audit.json").write_text(json.dumps(AUDIT | {"name": HOSTILE}))
    html = report_html([tmp_path / "run"])
    seen, plain = Tags(html), Tags(report_html([folders / "counts"]))
    # Each part keeps its data in a script that is never run.
    more = len(parts(cot_page(open_run(tmp_path / "run")))) - len(parts(cot_page(open_run(folders / "counts"))))
    assert seen.tags["script"] == plain.tags["script"] + more
    assert "img" not in seen.tags
    assert "onerror" not in seen.attributes
    assert "<script>alert(1)</script>" in seen.text
    assert "\u202e" not in html
    assert "\x1b" not in html
