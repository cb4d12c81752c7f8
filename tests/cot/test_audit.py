"""The audit finds what was planted, says nothing on clean data, and takes what users' files are like."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from made_audit import clean_rows, write_rows
from sklearn.feature_extraction.text import TfidfVectorizer

from lmassay.cli import main
from lmassay.cot.audit import duplicates
from lmassay.cot.audit.run import audit_file
from lmassay.errors import CODES, FINDING, LmassayError

DRAWS = 400


def report_of(rows, path, **settings):
    return audit_file(write_rows(rows, path), **{"draws": DRAWS, **settings})


def findings(report, check=None, subject=None):
    return [
        f
        for f in report.findings
        if (check is None or f.check == check) and (subject is None or subject in (f.subject, *f.also))
    ]


@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_is_found_on_clean_data(seed, tmp_path):
    report = report_of(clean_rows(seed), tmp_path / "clean.parquet")
    assert report.findings == ()
    assert report.n_tests > 300
    assert {f.split for f in report.figures} == {"train", "validation", "test", "ood_test", "evaluation"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_clean_data_has_any_finding_in_at_most_5_percent_of_400_seeds(tmp_path):
    seeds = [s for s in range(400) if report_of(clean_rows(s), tmp_path / "c.parquet", seed=s, draws=2000).findings]
    assert len(seeds) <= 20, seeds


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Many faults in one data set, each in a column or in a text of its own."""
    rng = np.random.default_rng(11)
    rows = clean_rows(5)
    for i, row in enumerate(rows):
        positive = row["label"] == "yes"
        # A number that tells exactly, one that is there for positives only, a category, and two fields that agree.
        row["z"] = float(positive) + rng.random() * 0.5
        row["only"] = 1.0 if positive or rng.random() < 0.1 else None
        row["kind"] = str(rng.choice(["p", "q"])) if positive else str(rng.choice(["r", "s"]))
        row["given"] = str(rng.choice(["u", "v", "w"]))
        row["majority"] = row["given"] if positive == (rng.random() < 0.95) else "none"
        row["a"], row["b"] = 5 + rng.normal() + positive, 5 + rng.normal() - positive
        # A name whose last number gives the label away.
        row["example_id"] = f"{row['question_id']}_{i:04d}_{int(positive) + 2 * int(rng.integers(0, 9))}"
        # Text: training rows have no line break and a word nobody else has; positives are longer in all splits.
        row["cot"] += " more of it and more" * (8 if positive else 0)
        row["cot"] = row["cot"].replace("\n", " ") if row["split"] == "train" else "\n" + row["cot"]
        if row["split"] == "train" and rng.random() < 0.3:
            row["cot"] += " zzyzx so"
    return report_of(rows, tmp_path_factory.mktemp("planted") / "planted.jsonl")


@pytest.mark.parametrize(
    ("severity", "subject"),
    [
        ("leak", "chain of thought: words"),
        ("hidden", "z"),
        ("hidden", "only is absent"),
        ("hidden", "kind"),
        ("hidden", "given equals majority"),
        ("hidden", "a - b"),
        ("hidden", "example_id: last number is odd"),
    ],
)
def test_a_planted_feature_is_found(planted, severity, subject):
    (found,) = findings(planted, "feature", subject)
    assert found.severity == severity
    assert any(f.strength_low is not None and f.strength_low > 0.6 for f in found.figures)


def test_what_tells_nothing_is_not_found(planted):
    for name in ("temperature", "draw", "source", "answer agrees with the suggestion"):
        assert findings(planted, subject=name) == []


def test_a_format_the_training_rows_lack_is_found(planted):
    (found,) = findings(planted, "format", "chain of thought: begins with white space")
    assert found.severity == "warning"
    # All rows of 18 questions prove it; 14 do not, with some 500 tests to correct for.
    assert [(f.split, f.auroc) for f in found.figures] == [("test", 1)]


def test_a_word_only_training_rows_end_in_is_found(planted):
    (found,) = findings(planted, "words near the end", "zzyzx")
    assert found.severity == "warning"
    assert "of no other row" in found.what


def test_findings_are_ordered_worst_first(planted):
    order = [f.severity for f in planted.findings]
    assert order == sorted(order, key=["leak", "warning", "hidden", "note"].index)
    assert order[0] == "leak"


def test_g_mean2_is_that_of_the_training_rows_threshold(planted):
    (exact,) = [f for f in planted.figures if (f.feature, f.split, f.scope) == ("z", "test", "all")]
    assert (exact.auroc, exact.g_mean2, exact.g_mean2_low) == (1, 1, 1)
    assert exact.n == 80


def test_order_inside_a_question_is_found_where_pooled_rows_hide_it(tmp_path):
    """Positives come first in every question; numbers of different questions have nothing to do with each other."""
    rng, rows = np.random.default_rng(2), clean_rows(6)
    places = {}
    for row in sorted(rows, key=lambda r: (r["question_id"], r["label"] == "no")):
        start = places.setdefault(row["question_id"], int(rng.integers(0, 100_000)))
        places[row["question_id"]] += 1
        row["sample"] = start
    (found,) = findings(report_of(rows, tmp_path / "o.parquet"), subject="sample")
    assert (found.check, found.severity) == ("inside a question", "hidden")
    assert {f.scope for f in found.figures} == {"within"}
    assert all(f.auroc == 0 for f in found.figures)


def test_rows_sorted_by_label_are_found(tmp_path):
    rows = sorted(clean_rows(7), key=lambda r: r["label"])
    report = report_of([{k: v for k, v in r.items() if k != "example_id"} for r in rows], tmp_path / "o.csv")
    assert any("row number" in (f.subject, *f.also) for f in report.findings)


def test_a_text_that_states_its_label_is_found(tmp_path):
    rows = clean_rows(8)
    for row in rows:
        row["cot"] = f"I say {row['label'].upper()}: " + row["cot"]
    report = report_of(rows, tmp_path / "s.parquet")
    (said,) = findings(report, "feature", "text says 'yes'")
    assert said.severity == "leak"


def test_copies_are_found(tmp_path):
    rows = clean_rows(9)
    of = {s: [r for r in rows if r["split"] == s] for s in ("train", "validation", "test", "ood_test")}
    long_ = ". ".join(
        f"sentence {w} is made of words that nobody else has" for w in ("one", "two", "three", "four", "five")
    )
    of["train"][0]["cot"], of["test"][0]["cot"] = long_, long_ + ". and an end"
    of["train"][1]["cot"] = of["validation"][1]["cot"]
    of["ood_test"][0] |= {"cot": "the very same text in one split", "label": "yes"}
    of["ood_test"][1] |= {"cot": "The  very same\ntext in one split", "label": "no"}
    of["ood_test"][2]["cot"] = "  "
    of["test"][3]["question_id"] = of["train"][3]["question_id"]
    of["validation"][4] |= {"question_id": "copy", "prompt": of["train"][4]["prompt"]}
    report = report_of(rows, tmp_path / "copies.parquet")
    where = {(f.check, f.subject): f for f in report.findings}
    for check, subject, severity in (
        ("text that another row continues", "test, continued in train", None),
        ("text that another row continues", "train, continued in test", "warning"),
        ("the same text", "train, validation", "warning"),
        ("contradictory duplicates", "ood_test", "warning"),
        ("duplicate texts", "ood_test", "note"),
        ("empty text", "ood_test", "note"),
        ("question ids", "train, test", "warning"),
        ("question text", "train, validation", "warning"),
        ("nearly the same text", "train, test", "warning"),
    ):
        if severity is None:
            assert (check, subject) not in where
        else:
            assert where[check, subject].severity == severity, (check, subject)
    assert where["contradictory duplicates", "ood_test"].what.startswith("1 texts")


def test_nearly_the_same_question_is_found_and_another_number_is_another_question(tmp_path):
    rows = clean_rows(10)
    asked = "A farmer has 17 sheep and buys 23 more before selling 5 of them at the market in town how many are left"
    other = asked.replace("17", "41").replace("23", "77").replace(" 5 ", " 9 ")
    of = {s: [r for r in rows if r["split"] == s] for s in ("train", "test")}
    of["train"][0] |= {"question_id": "sheep", "prompt": asked}
    of["test"][0] |= {"question_id": "sheep again", "prompt": asked + " over"}
    report = report_of(rows, tmp_path / "near.parquet")
    (found,) = findings(report, "nearly the same question")
    assert found.also == ("sheep ~ sheep again",)
    of["test"][0]["prompt"] = other
    assert findings(report_of(rows, tmp_path / "near.parquet"), "nearly the same question") == []


@pytest.mark.parametrize("block", [1, 3, 2000])
def test_questions_are_near_by_the_cosine_of_a_plain_vectoriser_in_any_blocks(monkeypatch, block):
    monkeypatch.setattr(duplicates, "_BLOCK", block)
    words = [
        "what",
        "is",
        "the",
        "sum",
        "of",
        "these",
        "two",
        "numbers",
        "and",
        "which",
        "of",
        "them",
        "was",
        "larger",
        "before",
        "they",
        "were",
        "added",
    ]
    first = {f"a{i}": " ".join([*words[i:], *words[:i]]) for i in range(7)}
    second = {f"b{i}": " ".join([*words[i + 1 :], *words[: i + 1], "today"]) for i in range(5)}
    texts = sorted({*first.values(), *second.values()})
    vectors = TfidfVectorizer(token_pattern=r"(?u)\w+", ngram_range=(1, 2), sublinear_tf=True).fit_transform(texts)
    cosine = {
        (p, q): float((vectors[texts.index(s)] @ vectors[texts.index(t)].T).sum())
        for p, s in first.items()
        for q, t in second.items()
    }
    # Between two values, where rounding decides nothing.
    ordered = sorted(cosine.values())
    at = int(np.diff(ordered).argmax())
    monkeypatch.setattr(duplicates, "NEAR", (ordered[at] + ordered[at + 1]) / 2)
    near = sorted(pair for pair, value in cosine.items() if value >= duplicates.NEAR)
    assert 0 < len(near) < len(cosine)
    assert duplicates.near_questions(first, second) == near


def test_the_kind_of_file_changes_nothing(tmp_path):
    rows = clean_rows(12, sizes={"train": (60, 12), "test": (40, 10)})
    parquet, jsonl, csv = (
        report_of(rows, tmp_path / f"rows{suffix}").to_dict() for suffix in (".parquet", ".jsonl", ".csv")
    )
    for other in (jsonl, csv):
        assert {k: v for k, v in other.items() if k not in ("name", "fingerprint")} == {
            k: v for k, v in parquet.items() if k not in ("name", "fingerprint")
        }


def test_a_question_is_a_row_and_one_split_is_enough(tmp_path):
    rows = [{"label": r["label"], "cot": r["cot"]} for r in clean_rows(13, sizes={"train": (80, 20)})]
    report = report_of(rows, tmp_path / "bare.jsonl")
    assert [s.split for s in report.splits] == ["all"]
    assert report.splits[0].questions == 80
    assert {"the file has no column split", "the file has no column question_id"} <= set(report.notes)
    assert any("not compared" in n for n in report.notes)


def test_a_number_with_many_values_is_cut_at_the_training_rows_median(tmp_path):
    rows = clean_rows(14)
    for i, row in enumerate(rows):
        row["label"], row["copy"] = i * 0.5, float(i)
    report = report_of(rows, tmp_path / "regression.parquet")
    assert "the target is above" in report.target
    assert findings(report, "feature", "copy")[0].severity == "hidden"
    train = next(s for s in report.splits if s.split == "train")
    assert train.positive == train.n // 2


def test_messages_and_options_are_read_and_counted(tmp_path):
    rows = clean_rows(15)
    for row in rows:
        turns = [{"role": "user", "content": row.pop("prompt")}, {"role": "assistant", "content": row.pop("cot")}]
        row["message"] = turns * (2 if row["label"] == "yes" else 1)
        row["option"] = [{"label": "A", "text": "Yes"}]
    report = report_of(rows, tmp_path / "turns.jsonl")
    assert findings(report, "feature", "turns")[0].severity == "leak"
    for row in rows:
        row["message"], row["option"] = json.dumps(row["message"]), json.dumps(row["option"])
    again = report_of(rows, tmp_path / "turns.csv")
    assert [f.what for f in again.findings] == [f.what for f in report.findings]


def test_two_runs_are_equal_and_another_seed_moves_intervals_only(tmp_path):
    path = write_rows(clean_rows(16, sizes={"train": (60, 12), "test": (40, 10)}), tmp_path / "rows.parquet")
    one, two, other = (audit_file(path, draws=DRAWS, seed=s) for s in (0, 0, 1))
    assert one == two
    key = {(f.feature, f.split, f.scope): f for f in other.figures}
    same = [f for f in one.figures if f.family not in ("first words", "prompt", "field", "name")]
    assert all(key[f.feature, f.split, f.scope].auroc == f.auroc for f in same)
    assert any(key[f.feature, f.split, f.scope].low != f.low for f in same)


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content", "code", "why"),
    [
        ("gone.parquet", None, "bad-request", "is no file"),
        ("rows.xlsx", "x", "bad-request", "ends in none of"),
        ("cut.parquet", b"PAR1 and no more", "cot-data-broken", "cannot be read"),
        ("cut.jsonl", '{"label": "yes"', "cot-data-broken", "cannot be read"),
        ("empty.csv", "", "cot-data-broken", "cannot be read"),
        ("none.csv", "label,cot\n", "cot-data-broken", "has no rows"),
        ("lebal.csv", "lebal,cot\nyes,a\n", "cot-data-broken", "did you mean lebal"),
        ("three.csv", "label,cot\nyes,a\nno,b\nmaybe,c\n", "cot-data-broken", "3 different labels"),
        ("unlabelled.jsonl", '{"label": null, "cot": "a"}', "cot-data-broken", "neither text nor a number"),
        ("nothing.csv", 'label,cot\n"",a\n', "cot-data-broken", "no label in any row"),
        ("list.jsonl", '{"label": "yes", "cot": ["a"]}', "cot-data-broken", "not text"),
        ("turns.jsonl", '{"label": "yes", "message": [{"role": "user"}]}', "cot-data-broken", "role and content"),
        ("json.csv", "label,message\nyes,[oh\n", "cot-data-broken", "is no JSON"),
        ("group.jsonl", '{"label": "yes", "question_id": null}', "cot-data-broken", "without question_id"),
    ],
)
def test_a_file_that_cannot_be_audited_is_refused_by_name(tmp_path, name, content, code, why):
    path = write(tmp_path, name, content) if content is not None else tmp_path / name
    with pytest.raises(LmassayError, match=why) as refused:
        audit_file(path)
    assert refused.value.code == code
    assert refused.value.code in CODES


def test_labels_that_are_not_the_task_s_are_refused(tmp_path):
    path = write(tmp_path, "rows.csv", "label,cot\nyes,a\nperhaps,b\n")
    with pytest.raises(LmassayError, match="'perhaps', which is not yes, no, 1 or 0"):
        audit_file(path, "reasoning_termination")
    with pytest.raises(LmassayError, match="did you mean"):
        audit_file(path, "reasoning_terminatoin")


@pytest.mark.parametrize("bound", [0.4, 1.0, float("nan")])
def test_a_bound_that_no_auroc_can_pass_is_refused(tmp_path, bound):
    path = write(tmp_path, "rows.csv", "label,cot\nyes,a\nno,b\n")
    with pytest.raises(LmassayError, match="max-auroc"):
        audit_file(path, max_auroc=bound)


def test_tiny_data_are_audited_and_prove_nothing(tmp_path):
    path = write(tmp_path, "rows.csv", "label,cot\nyes,a b\nno,b\n")
    report = audit_file(path, draws=DRAWS)
    assert report.leaks == ()
    assert all(f.status.startswith(("undefined", "no interval")) for f in report.figures)


def test_one_class_is_said_and_not_scored(tmp_path):
    rows = [{**r, "label": "yes"} for r in clean_rows(17, sizes={"train": (60, 30), "test": (40, 30)})]
    report = report_of(rows, tmp_path / "one.parquet")
    assert [s.negative for s in report.splits] == [0, 0]
    assert {f.check for f in report.findings} == {"class balance"}
    assert [f for f in report.figures if f.scope == "all"] == []


def test_the_command_exits_with_4_for_a_leak_and_0_without(tmp_path, capsys):
    rows = clean_rows(18, sizes={"train": (160, 40), "test": (60, 15)})
    path = write_rows(rows, tmp_path / "rows.parquet")
    with pytest.raises(SystemExit) as ended:
        main(["cot", "audit", str(path)])
    assert ended.value.code == 0
    assert "Nothing found." in capsys.readouterr().out
    for row in rows:
        row["cot"] = row["cot"] * (1 + 4 * (row["label"] == "yes"))
    path = write_rows(rows, tmp_path / "rows.parquet")
    with pytest.raises(SystemExit) as ended:
        main(["cot", "audit", str(path), "--json"])
    assert ended.value.code == FINDING
    document = json.loads(capsys.readouterr().out)
    assert "chain of thought: words" in document["leaks"]
    assert document["findings"][0]["severity"] == "leak"
    with pytest.raises(SystemExit) as ended:
        main(["cot", "audit", str(path), "--max-auroc", "0.999"])
    assert ended.value.code == 0


@pytest.mark.parametrize("words", [["user_preferense"], ["a.parquet", "--layout", "post"], ["4", "--task", "5"]])
def test_a_request_that_does_not_fit_is_one_line_and_status_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["cot", "audit", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_hostile_text_is_shown_harmless(tmp_path, capsys):
    rows = clean_rows(19, sizes={"train": (60, 12), "test": (40, 10)})
    evil = "\x1b[31m[bold]{{7*7}}\u202e\x00<script>"
    for row in rows:
        row["cot"] = f"{evil} {row['cot']}"
        row[evil] = f"{evil}{row['label']}"
        row["question_id"] = f"{evil}{row['question_id']}"
    path = write_rows(rows, tmp_path / "evil.parquet")
    for more in ([], ["--full"], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main(["cot", "audit", str(path), *more])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\x00" not in shown
        assert "[bold]" in shown


def test_a_lone_surrogate_is_read(tmp_path):
    lines = [f'{{"label": "{label}", "cot": "a \\\\ud800 {label}"}}' for label in ("yes", "no") * 5]
    report = audit_file(write(tmp_path, "rows.jsonl", "\n".join(lines)), draws=20)
    assert report.splits[0].n == 10


@pytest.mark.slow
def test_a_text_of_50_mb_is_audited(tmp_path):
    frame = pl.DataFrame({"label": ["yes", "no"] * 10, "cot": ["word " * 10_000_000, *["a few words"] * 19]})
    path = tmp_path / "large.parquet"
    frame.write_parquet(path)
    report = audit_file(path, draws=20)
    assert report.splits[0].n == 20
