"""What a user sees: one line, an exit status, nothing half-written."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from lmassay.cli import main
from tiny_models import tiny_hf, tiny_tokenizer


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out = capsys.readouterr()
    return stop.value.code, out.out, out.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model as a folder."""
    path = tmp_path_factory.mktemp("model") / "tiny"
    tiny_hf("gpt2").save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def battery(tmp_path_factory):
    path = tmp_path_factory.mktemp("battery") / "mine.jsonl"
    rows = [
        {"id": f"t{i}", "family": "sums", "template": f"w{i % 12}", "prompt": f"{i} plus 1 equals",
         "options": [str(i + 1), str(i + 2), str(i)], "answer": 0, "paraphrases": [f"What is {i} + 1? It is"]}
        for i in range(12)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def finished(folder, battery, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    with pytest.raises(SystemExit) as stop:
        main(["xray", "run", str(folder), "--battery", str(battery), "--out", str(out)])
    assert stop.value.code == 0
    return out


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("xray", "run", "smollm2-135"), 2, "error[model-not-found]: no bundled model or folder 'smollm2-135'"),
        (("xray", "run", "smollm2-135m", "--battery", "core5"), 2, "did you mean core50?"),
        (("xray", "run", "smollm2-135m", "--battery", "balanced:6"), 2, "multiple of 4"),
        (("xray", "run", "smollm2-135m", "--battery", "balanced:99996"), 2, "at most balanced:1024"),
        (("xray", "run", "smollm2-135m", "--protocol", "multi"), 2, "did you mean multi-token?"),
        (("xray", "run", "smollm2-135m", "--phases", "controls"), 2, "add real to --phases"),
        (("xray", "run", "gemma3-270m"), 2, "error[licence-not-accepted]"),
        (("show", "nowhere"), 2, "error[bad-run-folder]: nowhere is no readable run"),
        (("rescore", "nowhere"), 2, "error[bad-run-folder]"),
        (("bundle", "nowhere"), 2, "error[bad-run-folder]"),
        (("cite", "nowhere"), 2, "error[bad-run-folder]"),
        (("xray", "compare", "nowhere"), 2, "two or more runs"),
        (("xray", "score", "nowhere.parquet"), 2, "error[bad-option-scores]"),
        (("xrays",), 2, "did you mean xray?"),
        (("xray", "run"), 2, "Missing argument"),
        (("xray", "run", "x", "--nonsense"), 2, "--nonsense"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_status_two(capsys, tmp_path, monkeypatch, arguments, status, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = _run(capsys, *arguments)
    assert (code, out) == (status, "")
    lines = [line for line in err.splitlines() if not line.startswith("opening ")]
    assert len(lines) == 1, err
    assert said in lines[0]


@pytest.mark.tiny
def test_a_run_prints_evidence_first_and_names_its_folder(capsys, finished):
    code, out, _ = _run(capsys, "show", finished)
    assert code == 0
    assert out.index("Evidence") < out.index("Scores") < out.index("PSI by family")
    assert f"run folder: {finished}" in out
    assert "\x1b[" not in out


@pytest.mark.tiny
def test_json_is_the_scores_file(capsys, finished):
    _, out, _ = _run(capsys, "show", finished, "--json")
    assert json.loads(out) == json.loads((finished / "scores.json").read_text())


@pytest.mark.tiny
def test_rescore_finds_nothing_changed(capsys, finished):
    _, out, _ = _run(capsys, "rescore", finished)
    assert "all scores are as before" in out


@pytest.mark.tiny
def test_a_bundle_is_deterministic_and_verifies_and_a_changed_one_does_not(capsys, finished, tmp_path):
    for name in ("a.tar.gz", "b.tar.gz"):
        assert _run(capsys, "bundle", finished, "-o", tmp_path / name)[0] == 0
    data = (tmp_path / "a.tar.gz").read_bytes()
    assert data == (tmp_path / "b.tar.gz").read_bytes()
    assert _run(capsys, "bundle", "--verify", tmp_path / "a.tar.gz")[0] == 0
    (tmp_path / "cut.tar.gz").write_bytes(data[: len(data) // 2])
    code, _, err = _run(capsys, "bundle", "--verify", tmp_path / "cut.tar.gz")
    assert code == 4
    assert len(err.splitlines()) == 1


@pytest.mark.tiny
def test_cite_prints_a_row_an_entry_and_the_hash(capsys, finished):
    _, out, _ = _run(capsys, "cite", finished)
    assert r"\\" in out
    assert "@misc{lmassay-" in out
    assert "content sha256: " in out


@pytest.mark.tiny
def test_compare_refuses_another_convention_by_name(capsys, folder, battery, finished, tmp_path):
    other = tmp_path / "other"
    options = ("--battery", battery, "--depths", "distinct", "--out", other)
    assert _run(capsys, "xray", "run", folder, *options)[0] == 0
    code, _, err = _run(capsys, "xray", "compare", finished, other)
    assert code == 2
    assert "differ in depths: paper and distinct" in err
    code, out, _ = _run(capsys, "xray", "compare", finished, finished)
    assert code == 0
    assert "psi_excess_p" in out


@pytest.mark.tiny
def test_scores_made_elsewhere_come_out_as_the_run_itself(capsys, finished, tmp_path):
    import polars as pl

    options = pl.read_parquet(finished / "options.parquet").drop("score", "flags", "depth_index")
    answers = pl.read_parquet(finished / "labels.parquet").filter(condition="real")
    table = options.join(answers.select("task_id", "variant", answer="option"), on=["task_id", "variant"])
    table.write_parquet(tmp_path / "mine.parquet")
    out = tmp_path / "outside"
    assert _run(capsys, "xray", "score", tmp_path / "mine.parquet", "--out", out)[0] == 0
    ours, theirs = (json.loads((p / "scores.json").read_text())["scores"] for p in (finished, out))
    assert ours == theirs


@pytest.mark.tiny
def test_a_second_writer_is_refused(capsys, folder, battery, tmp_path):
    out = tmp_path / "run"
    code = f"""
import sys, time
from pathlib import Path
from lmassay.storage.runs import claimed
with claimed(Path({str(out)!r})):
    print("held", flush=True); time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        status, _, err = _run(capsys, "xray", "run", folder, "--battery", battery, "--out", out)
        assert status == 2
        assert f"error[run-folder-in-use]: {out} is being written by process {holder.pid}" in err
    finally:
        holder.kill()
        holder.wait()
    assert _run(capsys, "xray", "run", folder, "--battery", battery, "--out", out)[0] == 0


@pytest.mark.tiny
def test_a_folder_with_something_else_in_it_is_left_alone(capsys, folder, battery, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    code, _, err = _run(capsys, "xray", "run", folder, "--battery", battery, "--out", tmp_path)
    assert code == 2
    assert "it holds thesis.tex" in err
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_help_imports_nothing_heavy():
    heavy = ("torch", "transformers", "polars", "scipy", "pydantic", "numpy")
    code = f"import sys, lmassay.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
