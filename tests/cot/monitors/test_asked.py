"""Asking through Inspect: a run like any other, faults retried, a broken run resumed, no key anywhere, logs read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jsonschema
import numpy as np
import polars as pl
import pytest

pytest.importorskip("inspect_ai")

from chat_server import serving
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from made_cot import made_data

from lmassay.cli import main
from lmassay.cot.board_runs import read_runs
from lmassay.cot.evaluate import rescored
from lmassay.cot.monitors import extra, logs
from lmassay.cot.monitors.asking import Asking
from lmassay.cot.monitors.imported import import_log
from lmassay.cot.monitors.run import run_monitor
from lmassay.cot.monitors.settings import Items, checked_generation, parsed_settings
from lmassay.errors import LmassayError
from lmassay.storage.runs import read_record
from lmassay.storage.schema import schema

KEY = "sk-canary-5f1e77"
HERE = Path(__file__).parents[1]


def said(text):
    """A reply with its tokens: without them Inspect counts with a tokenizer it would have to download."""
    found = ModelOutput.from_content("mockllm/model", text)
    found.usage = ModelUsage(input_tokens=10, output_tokens=2, total_tokens=12)
    return found


def mock(reply):
    return get_model("mockllm/model", custom_outputs=lambda given, *_: said(reply(given)), memoize=False)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A file of examples of task 3, so that every way in can load it."""
    path = tmp_path_factory.mktemp("own") / "mine.jsonl"
    made = made_data(n=12, n_questions=6)
    rows = []
    for name, split in made.splits.items():
        for i, example in enumerate(split.examples):
            rows.append(
                {
                    "example_id": f"{name}/{i}",
                    "split": name,
                    "question_id": f"q{split.groups[i]}",
                    "label": "positive" if split.y[i] == 1 else "negative",
                    "cot": f"{example.text('cot')} {name} {i}",
                }
            )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def items(source):
    return Items("follow_up_confidence", source=source)


def hesitates(messages):
    return '{"answer": "higher"}' if "wait" in messages[-1].text else '{"answer": "lower"}'


def test_a_run_of_a_monitor_is_a_run_like_any_other(items, tmp_path):
    found = run_monitor(items, mock(hesitates), out=tmp_path / "run")
    record = read_record(tmp_path / "run")
    jsonschema.validate(record, schema("cot_run"))
    jsonschema.validate(found.document, schema("cot_scores"))
    assert record["status"] == "done"
    assert record["identity"]["method"]["id"] == "monitor_0shot_label[mockllm/model]"
    assert record["usage"] == {"input_tokens": 360, "output_tokens": 72, "total_tokens": 432}
    assert rescored(tmp_path / "run", record) == found.document
    data = items.load()
    mine = found.predictions.filter(method_id=record["identity"]["method"]["id"], split="test")
    wanted = [float("wait" in x.text("cot")) for x in data["test"].examples]
    assert mine["score"].to_list() == wanted
    (run,) = read_runs([tmp_path / "run"], paired_regimes=False)
    assert (run.kind, run.llm) == ("method", True)
    replies = pl.read_parquet(tmp_path / "run" / "replies.parquet")
    assert replies.height == 36
    # Done is done: nobody is asked again.
    again = run_monitor(items, mock(lambda _: pytest.fail("asked")), out=tmp_path / "run")
    assert again.document == found.document


def test_a_confidence_gives_a_threshold_from_validation_and_an_auroc(items):
    def confident(messages):
        return json.dumps(
            {"probability": round(0.2 + 0.5 * ("wait" in messages[-1].text) + len(messages[-1].text) % 7 / 50, 3)}
        )

    found = run_monitor(items, mock(confident), Asking(confidence=True))
    assert found.document["scores"]["test.auroc"]["value"] is not None
    threshold = found.document["thresholds"]["monitor_0shot_confidence[mockllm/model]"]["value"]
    assert 0.2 < threshold < 0.9


def test_several_replies_are_averaged_and_their_spread_is_told(items):
    count = Counter()

    def wavering(messages):
        item = messages[-1].text
        count[item] += 1
        return [f'{{"probability": {p}}}' for p in (0.2, 0.4)][count[item] % 2] if count[item] < 3 else "no idea"

    found = run_monitor(items, mock(wavering), Asking(confidence=True, samples=3))
    scores = found.predictions.filter(pl.col("method_id").str.starts_with("monitor"))["score"]
    assert scores.to_list() == pytest.approx([0.3] * 36)
    section = found.document["monitor"]["test"]
    assert section["spread"]["value"] == pytest.approx(np.std([0.2, 0.4], ddof=1))
    assert section["unparsed_replies"]["value"] == pytest.approx(1 / 3)
    assert section["reasons"] == {"no number from 0 to 1": 12}


def test_shots_are_sent_as_turns_and_recorded(items):
    seen = []

    def heard(messages):
        seen.append([m.role for m in messages])
        return "higher"

    run_monitor(items, mock(heard), Asking(shots=2))
    assert {tuple(roles) for roles in seen} == {("system", "user", "assistant", "user", "assistant", "user")}


def test_an_over_long_item_is_not_asked_about_and_counted(items):
    asked = []
    lengths = [len(x.text("cot")) for name in ("validation", "test", "ood_test") for x in items.load()[name].examples]
    limit = int(np.median(lengths))
    found = run_monitor(items, mock(lambda m: asked.append(1) or "higher"), Asking(max_chars=limit))
    assert len(asked) == sum(n <= limit for n in lengths) < len(lengths)
    reasons = Counter()
    for split in found.document["monitor"].values():
        reasons |= Counter(split["reasons"])
    assert set(reasons) == {"over-long"}


def served(items, server, out=None, **more):
    options = {"max_connections": 4, "max_retries": 6, "timeout": 60} | more
    return run_monitor(items, "openai-api/served/model", out=out, base_url=server.url, generation=options)


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("SERVED_API_KEY", KEY)
    return KEY


def test_faults_are_retried_and_nothing_is_lost(items, tmp_path, key):
    """Each item meets another fault first: 429, 500, a lost connection."""
    order = {}

    def reply(body, n):
        item = body["messages"][-1]["content"]
        which = order.setdefault(item, len(order)) % 4
        if n == 1 and which < 3:
            return [429, 500, "drop"][which]
        return "higher" if "wait" in item else "lower"

    with serving(reply) as server:
        found = served(items, server, tmp_path / "run")
    assert set(server.answered.values()) == {1}
    assert len(server.answered) == 36
    assert max(server.asked.values()) == 2
    assert found.document["scores"]["test.unparsed"]["value"] == 0


def test_a_reply_that_takes_too_long_is_given_up_and_asked_for_again(items, tmp_path, key):
    """The first request about each of four items gets no answer within the limit of a second."""
    order = {}

    def reply(body, n):
        item = body["messages"][-1]["content"]
        late = order.setdefault(item, len(order)) % 9 == 0
        return "hang" if late and n == 1 else "higher" if "wait" in item else "lower"

    with serving(reply) as server:
        found = served(items, server, tmp_path / "run", attempt_timeout=1)
    assert sorted(server.asked.values()) == [1] * 32 + [2] * 4
    assert set(server.answered.values()) == {1}
    assert len(server.answered) == 36
    assert found.document["scores"]["test.unparsed"]["value"] == 0


@pytest.mark.slow
def test_a_server_that_stops_answering_leaves_a_run_that_goes_on_without_asking_twice(items, tmp_path, key):
    """It takes requests and answers none of them: each is given up after a second, retries included."""

    def stuck(body, n):
        return "higher" if len(server.answered) < 30 else "hang"

    with serving(stuck) as server:
        with pytest.raises(LmassayError, match="items have no reply") as caught:
            served(items, server, tmp_path / "run", attempt_timeout=1, timeout=2, max_retries=1)
        first = set(server.answered)
        # Each was tried again before the run gave up.
        assert {server.asked[item] > 1 for item in set(server.asked) - first} == {True}
    assert caught.value.exit_status == 3
    assert 30 <= len(first) < 36
    assert read_record(tmp_path / "run")["status"] == "failed"
    with serving(lambda body, n: "lower") as server:
        found = served(items, server, tmp_path / "run", attempt_timeout=1, timeout=2, max_retries=1)
        assert set(server.asked.values()) == {1}
        assert not set(server.asked) & first
        assert len(server.asked) == 36 - len(first)
    assert found.document["counts"]["test"]["n_scored"] == 12


def test_an_item_too_long_for_the_model_is_unparsed(items, key):
    with serving(lambda body, n: "long" if " test " in body["messages"][-1]["content"] else "higher") as server:
        found = served(items, server)
    assert found.document["scores"]["test.unparsed"]["value"] == 1
    assert found.document["monitor"]["test"]["reasons"] == {"longer than the model's context": 12}
    assert max(server.asked.values()) == 1


@pytest.mark.slow
def test_a_server_that_goes_away_leaves_a_run_that_goes_on_without_asking_twice(items, tmp_path, key):
    def dying(body, n):
        return "higher" if len(server.answered) < 15 else 400

    with serving(dying) as server:
        with pytest.raises(LmassayError, match="items have no reply") as caught:
            served(items, server, tmp_path / "run")
        first = set(server.answered)
    assert caught.value.exit_status == 3
    assert 15 <= len(first) < 36
    assert read_record(tmp_path / "run")["status"] == "failed"
    with serving(lambda body, n: "lower") as server:
        found = served(items, server, tmp_path / "run")
        assert not set(server.asked) & first
        assert len(server.asked) == 36 - len(first)
    assert found.document["counts"]["test"]["n_scored"] == 12


@pytest.mark.slow
def test_a_key_is_sent_and_stands_in_no_file_of_the_run_and_no_error(items, tmp_path, key, capsys):
    with serving(lambda body, n: "higher") as server:
        served(items, server, tmp_path / "run")
    assert any(KEY in str(h) for h in server.headers_seen)
    with serving(lambda body, n: 400) as server, pytest.raises(LmassayError) as caught:
        served(items, server, tmp_path / "broken")
    assert KEY not in str(caught.value)
    assert KEY not in "".join(capsys.readouterr())
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
            if path.suffix == ".eval":
                assert KEY not in unzipped(path)


def unzipped(path):
    from inspect_ai.log import read_eval_log

    return read_eval_log(str(path)).model_dump_json()


def test_a_schema_is_sent_where_it_is_asked_for(items, key):
    with serving(lambda body, n: '{"answer": "higher"}') as server:
        run_monitor(items, "openai-api/served/model", structured=True, limit=2, base_url=server.url)
        schemas = [b["response_format"]["json_schema"]["schema"] for b in server.bodies]
    assert schemas[0]["properties"]["answer"]["enum"] == ["higher", "lower"]
    with serving(lambda body, n: "higher") as server:
        run_monitor(items, "openai-api/served/model", limit=2, base_url=server.url)
        assert not any("response_format" in b for b in server.bodies)


def test_inspects_own_command_runs_a_task_and_its_log_becomes_a_run(source, tmp_path, monkeypatch, key):
    with serving(lambda body, n: "higher" if "wait" in body["messages"][-1]["content"] else "lower") as server:
        command = [
            sys.executable, "-m", "inspect_ai", "eval", "lmassay/follow_up_confidence", "--model",
            "openai-api/served/model", "--model-base-url", server.url, "-T", f"source={source}", "--log-dir",
            str(tmp_path / "logs"), "--display", "plain", "--max-connections", "4",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(server.answered) == 36
    (log,) = (tmp_path / "logs").glob("*.eval")
    with monkeypatch.context() as bunches:
        bunches.setattr(logs, "_TOGETHER", 5)
        found = import_log(log, out=tmp_path / "run")
    shown = shown_by_inspect(log)
    assert shown["test.g_mean2"] == pytest.approx(found.document["scores"]["test.g_mean2"]["value"])
    assert shown["ood_test.unparsed"] == 0
    assert np.isnan(shown["test.auroc"])
    own = run_monitor(Items("follow_up_confidence", source=source), mock(hesitates))
    assert found.document["scores"] == own.document["scores"]
    assert found.document["identity"]["method"]["id"] == "monitor_0shot_label[openai-api/served/model]"
    with pytest.raises(SystemExit) as ended:
        main(["cot", "import-log", str(log), "--out", str(tmp_path / "again")])
    assert ended.value.code == 0
    other = tmp_path / "other.jsonl"
    other.write_text(source.read_text().replace("alpha", "omega"))
    with pytest.raises(LmassayError, match="other data"):
        import_log(log, source=other)


def shown_by_inspect(log):
    """The figures of Inspect's own table."""
    from inspect_ai.log import read_eval_log

    scores = read_eval_log(str(log), header_only=True).results.scores
    return {name: m.value for score in scores for name, m in score.metrics.items()}


def test_sentences_are_chosen_in_the_log_of_the_selection_task(tmp_path):
    from inspect_ai import eval as inspect_eval

    from lmassay.cot.monitors.registry import monitor

    path = tmp_path / "sentences.jsonl"
    rows = [
        {
            "example_id": str(i), "split": split, "question_id": str(i), "label": None, "prompt": "Which?",
            "cot": " ".join(f"Step {k} of {i}." for k in range(9)),
        }
        for i, split in enumerate(["train", "test", "test"])
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    replies = iter(['{"sentences": [4, 1]}', '{"sentences": [1, 9]}', '{"sentences": [2, 3]}'])
    made = monitor("compression", source=str(path), m=2)
    model = mock(lambda _: next(replies))
    (log,) = inspect_eval(made, model=model, log_dir=str(tmp_path / "logs"), display="none", max_connections=1)
    found = [next(iter(sample.scores.values())) for sample in log.samples]
    assert sorted(score.answer for score in found if not score.explanation) == ["1, 4", "2, 3"]
    assert [score.explanation for score in found if score.explanation] == [
        "not the number of different sentences asked for"
    ]


def test_what_is_no_log_of_ours_is_refused(tmp_path):
    with pytest.raises(LmassayError, match="is no file"):
        import_log(tmp_path / "none.eval")
    (tmp_path / "bad.eval").write_bytes(b"PK nothing")
    with pytest.raises(LmassayError, match="cannot be read as a log"):
        import_log(tmp_path / "bad.eval")


def test_options_are_typed_and_unknown_ones_get_the_nearest():
    asking, more = parsed_settings(2, True, 3, ["max_chars=900", "overlength=truncate", "limit=5", "max_tokens=7"])
    assert asking == Asking(shots=2, confidence=True, samples=3, max_chars=900, overlength="truncate")
    assert more == {"limit": 5, "generation": {"max_tokens": 7}}
    for wrong in (["max_chars=many"], ["structured=maybe"], ["nothing"], ["max_tokens=x"]):
        with pytest.raises(LmassayError, match="bad-request"):
            parsed_settings(0, False, 1, wrong)
    with pytest.raises(LmassayError, match="did you mean max_tokens"):
        checked_generation({"max_token": 3})


def test_options_of_a_monitor_are_refused_elsewhere_and_a_monitor_needs_a_model(capsys):
    for arguments in (["--shots", "2", "--method", "tfidf"], ["--method", "monitor"]):
        with pytest.raises(SystemExit) as ended:
            main(["cot", "run", "3", *arguments])
        assert ended.value.code == 2
    assert "--monitor-model" in capsys.readouterr().err


def test_without_inspect_the_error_says_what_to_install(monkeypatch, items):
    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    with pytest.raises(LmassayError, match=r"pip install 'lmassay\[monitors\]'"):
        run_monitor(items, "mockllm/model")
