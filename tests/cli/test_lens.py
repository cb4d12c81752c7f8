"""A lens on the command line: fitted once, read by name or by folder, and never that of another model."""

from __future__ import annotations

import json

import pytest

from lmassay.cli import main
from tiny_models import tiny_hf, tiny_tokenizer

pytestmark = pytest.mark.tiny
STEPS = ("--steps", "3", "--tokens-per-step", "32")


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out = capsys.readouterr()
    return stop.value.code, out.out, out.err


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A model, a text and a battery, with a cache of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LMASSAY_CACHE", str(tmp_path / "cache"))
    tiny_hf("gpt2").save_pretrained("tiny")
    tiny_tokenizer().save_pretrained("tiny")
    (tmp_path / "text.txt").write_text(" ".join(f"Start with {i}. Add 5. The result is {i + 5}." for i in range(40)))
    rows = [
        {"id": f"t{i}", "family": "sums", "template": f"w{i}", "prompt": f"{i} plus 1 equals",
         "options": [str(i + 1), str(i + 2), str(i)], "answer": 0}
        for i in range(3)
    ]  # fmt: skip
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_a_lens_is_fitted_kept_and_read_by_name_and_by_folder(here, capsys):
    status, _, err = _run(capsys, "xray", "run", "tiny", "--battery", "mine.jsonl", "--lens", "tuned")
    assert status == 2
    assert "error[bad-request]: no lens has been fitted for tiny" in err
    assert "lmassay models fit-lens tiny --text FILE" in err

    status, out, err = _run(capsys, "models", "fit-lens", "tiny", "--text", "text.txt", *STEPS)
    assert status == 0
    assert "fitting: " in err
    for depth in ("embed", "block.0", "block.1"):
        assert depth in out
    (folder,) = (here / "cache" / "lenses").iterdir()

    status, out, _ = _run(capsys, "models", "fit-lens", "tiny", "--text", "text.txt", *STEPS, "--json")
    again = json.loads(out)
    assert status == 0
    assert again["resumed_step"] == 3

    records = {}
    for name, lens in (("a", "tuned"), ("b", str(folder)), ("c", "logit")):
        run = ("xray", "run", "tiny", "--battery", "mine.jsonl", "--lens", lens, "--out", name)
        status, out, _ = _run(capsys, *run)
        assert status == 0
        assert ("tuned lens" in out) == (lens != "logit")
        records[name] = json.loads((here / name / "run.json").read_text())
    lenses = {name: record["identity"]["convention"]["lens"] for name, record in records.items()}
    assert lenses == {"a": {"tuned": again["sha256"]}, "b": {"tuned": again["sha256"]}, "c": "logit"}

    status, _, err = _run(capsys, "xray", "run", "tiny", "--battery", "mine.jsonl", "--out", "a")
    assert status == 2
    assert "error[run-folder-mismatch]" in err
    assert "convention.lens" in err
    status, _, err = _run(capsys, "xray", "compare", "a", "c")
    assert status == 2
    assert "differ in lens: tuned and logit" in err


def test_a_lens_that_came_out_worse_is_a_finding(here, capsys):
    wild = ("--steps", "20", "--tokens-per-step", "32", "--lr", "1e6")
    status, out, err = _run(capsys, "models", "fit-lens", "tiny", "--text", "text.txt", *wild, "--out", "wild")
    assert status == 4
    assert "embed" in out
    assert err.splitlines()[-1].startswith("worse than the logit lens at 3 of 3 depths")


def test_a_lens_of_another_model_is_one_line_and_leaves_nothing_measured(here, capsys):
    assert _run(capsys, "models", "fit-lens", "tiny", "--text", "text.txt", *STEPS, "--out", "lens")[0] == 0
    tiny_hf("gpt2", seed=4).save_pretrained("other")
    tiny_tokenizer().save_pretrained("other")
    status, _, err = _run(capsys, "xray", "run", "other", "--battery", "mine.jsonl", "--lens", "lens", "--out", "run")
    assert status == 2
    (line,) = [line for line in err.splitlines() if not line.startswith("opening")]
    assert line.startswith("error[lens-mismatch]: lens is a lens of tiny (weights ")
    assert not (here / "run" / "run.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("xray", "run", "tiny", "--lens", "tune"), "no lens folder 'tune' — --lens is logit, tuned or a folder"),
        (("models", "fit-lens", "tiny", "--text", "absent.txt"), "cannot read absent.txt"),
        (("models", "fit-lens", "tiny", "--text", "text.txt"), "give a longer text, or a smaller --tokens-per-step"),
        (("models", "fit-lens", "tiny", "--text", "text.txt", "--lr", "0"), "--lr are positive"),
    ],
)
def test_what_cannot_be_done_is_one_line(here, capsys, arguments, said):
    status, out, err = _run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert said in err.splitlines()[-1]
