"""Labels recomputed from the stored samples by a script of its own: of the demo's data, and of a tiny random model's."""

from __future__ import annotations

import json
import math

import polars as pl
import pytest
import torch
from recompute import faults

from lmassay.cli import main
from lmassay.cot.build.sentences import sentences
from lmassay.cot.demo import FOLDER, ROLLOUTS, demo_file, demo_tasks
from lmassay.models.generate import InProcess
from lmassay.models.open import open_model
from lmassay.models.sampling import Prompt
from lmassay.storage.rollouts import opened
from tiny_models import tiny_hf, tiny_tokenizer

#: Thresholds at which a model of random weights gives examples of every task.
EASY = {
    "atypical_answer": ("rollouts=40", "rule.least_rollouts=2", "rule.low=0", "rule.high=1", "rule.each=9"),
    "atypical_length": ("rollouts=12", "rule.least_rollouts=5", "rule.spread=1", "rule.bin=100", "rule.deviations=0.3"),
    "answer_entropy": ("rollouts=6", "most=3"),
    "compression": ("rollouts=3", "shortest=6", "step=4", "keep=1", "monitor_tokens=3"),
    "reasoning_termination": (
        "rollouts=8", "resamples=6", "candidates=4", "least_words=1", "rule.agree=0.4", "rule.first=1", "rule.last=9",
        "rule.after=10", "rule.near=1,2", "rule.far=4,1", "rule.least_words=1", "bin=1000"),
    "self_deletion": (
        "rollouts=4", "turns=2", "resamples=4", "command=A", "rule.least_words=1", "rule.positive=0.5",
        "rule.negative=0.9", "candidates=1"),
    "follow_up_confidence": (
        "baseline=40", "extremes=4", "resamples=8", "rule.alpha=1.1", "rule.effect=0", "answer_tokens=9",
        "score_tokens=12"),
    "user_preference": ("samples=40", "rule.rise=0.1", "rule.control=1", "rule.flat=0.09"),
    "authority_hint": ("samples=40", "rule.rise=0.1", "rule.flat=0.09"),
}  # fmt: skip

#: Tasks whose subject has to say several sentences.
LONG = ("answer_entropy", "compression", "reasoning_termination")


@pytest.mark.parametrize("task", demo_tasks())
def test_labels_of_the_demo_data_are_those_of_its_samples(task):
    recipe = json.loads((FOLDER / "recipes.json").read_text())[task]
    data = pl.read_parquet(demo_file(task))
    n, found = faults(data, recipe, pl.read_parquet(FOLDER / f"{ROLLOUTS}.parquet"))
    assert found == []
    assert n == data.height > 0


def test_a_label_that_is_not_its_samples_is_found():
    task = next(t for t in demo_tasks() if t == "atypical_length")
    recipe = json.loads((FOLDER / "recipes.json").read_text())[task]
    data = pl.read_parquet(demo_file(task))
    other = pl.when(pl.col("label") == "long").then(pl.lit("short")).otherwise(pl.lit("long"))
    _, found = faults(data.with_columns(label=other), recipe, pl.read_parquet(FOLDER / f"{ROLLOUTS}.parquet"))
    assert len(found) == data.height


#: How often the subjects say what; the first ends soon, the second goes on for sentences.
SAYS = {
    "short": {"A": 0.18, "B": 0.12, "7": 0.06, "3": 0.06, ".": 0.05, "Ġ": 0.1, "</s>": 0.25},
    "long": {"A": 0.1, "B": 0.1, ".": 0.3, "Ġ": 0.3, "</s>": 0.02},
}


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    """Random models whose heads have a bias: they say a few tokens often, whatever they are asked; and questions."""
    found = {}
    for name, often in SAYS.items():
        found[name] = here = tmp_path_factory.mktemp(name)
        # Monitors are told a lot.
        hf, tokenizer = tiny_hf("phi", max_position_embeddings=8192), tiny_tokenizer()
        rest = (1 - sum(often.values())) / (len(tokenizer) - len(often))
        with torch.no_grad():
            hf.lm_head.weight.mul_(0.5)
            for token, share in often.items():
                hf.lm_head.bias[tokenizer.convert_tokens_to_ids(token)] = math.log(share / rest)
        hf.save_pretrained(here / "tiny")
        tokenizer.save_pretrained(here / "tiny")
        splits = ("train", "train", "test", "test", "validation", "test")
        rows = [
            {"question_id": f"q{i}", "prompt": f"Start with {i}.", "options": ["Yes", "No"], "split": split}
            for i, split in enumerate(splits)
        ]
        (here / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return found


@pytest.mark.tiny
@pytest.mark.parametrize("task", EASY)
def test_labels_of_a_tiny_model_s_data_are_those_of_its_samples(subjects, tmp_path, task, capsys):
    subject, limit = (subjects["long"], 150) if task in LONG else (subjects["short"], 30)
    words = [w for option in (*EASY[task], f"sampling.max_tokens={limit}") for w in ("--option", option)]
    with pytest.raises(SystemExit) as stop:
        main(["cot", "generate", task, "--model", str(subject / "tiny"), "--prompts", str(subject / "q.jsonl"),
              "--out", str(tmp_path / "out"), *words])  # fmt: skip
    said = capsys.readouterr()
    assert stop.value.code == 0, said.err
    with opened(tmp_path / "out" / "rollouts") as store:
        store.export_parquet(tmp_path / "rollouts.parquet")
    recipe = json.loads((tmp_path / "out" / "recipe.json").read_text())
    data = pl.read_parquet(tmp_path / "out" / ("cells.parquet" if task == "compression" else "data.parquet"))
    n, found = faults(data, recipe, pl.read_parquet(tmp_path / "rollouts.parquet"))
    assert found == []
    assert n == data.height > 0
    if task in ("answer_entropy", "compression"):
        _check_distributions(task, data, subject, pl.read_parquet(tmp_path / "rollouts.parquet"))


def _check_distributions(task, data, subject, rollouts):
    """Forced answers by whole forward passes in float64."""
    model = open_model(str(subject / "tiny"), dtype="float64")
    renderer = InProcess(model).renderer
    asked = {m[0]["text"].split("\n\n")[0]: m[0]["text"] for m in rollouts["messages"].to_list() if len(m) == 1}

    def shares(question, text):
        forced = f"{text} So, the answer is:\n\n" if text else "So, the answer is:\n\n"
        ids = renderer.ids(Prompt.of(asked[question], forced))
        with torch.inference_mode():
            logits = model.hf(torch.tensor([ids])).logits[0, -1]
        return torch.softmax(logits[[renderer.letter_token(x) for x in "AB"]], -1).tolist()

    if task == "answer_entropy":
        for row in data.head(20).to_dicts():
            assert row["distribution"] == pytest.approx(shares(row["prompt"], row["cot"]), abs=1e-5)
        return
    texts = {(m[0]["text"], number): text for m, prefix, number, text in
             rollouts.select("messages", "prefix", "number", "text").rows() if len(m) == 1 and not prefix}  # fmt: skip
    for row in data.filter(pl.col("selector") != "monitor").head(30).to_dicts():
        question = f"Start with {row['question'][1:]}."
        own = sentences(texts[asked[question], row["rollout"]])[: row["prefix_length"]]
        kept = list(range(row["m"])) if row["indices"] is None else row["indices"]
        whole = shares(question, " ".join(own))
        some = shares(question, " ".join([own[i] for i in kept] + own[-5:]))
        kl = sum(p * math.log(p / q) for p, q in zip(whole, some, strict=True))
        assert row["answer_kl"] == pytest.approx(kl, abs=1e-5)
