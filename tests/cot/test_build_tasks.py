"""Builders on a subject whose behaviour is known: labels by hand, what is dropped, what is balanced."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from planted_subject import Planted, shop_of, whole
from scipy.special import log_softmax
from scipy.stats import entropy as scipy_entropy

from lmassay.cot.build import arms, atypical, compression, confidence, deletion, entropy, termination
from lmassay.cot.build.prompts import Question
from lmassay.cot.build.rules import AtypicalAnswer, AtypicalLength, Dropped
from lmassay.cot.build.sentences import n_words, sentences
from lmassay.models.sampling import LENGTH, STOP, Sample
from lmassay.seeds import derive

SIX = [f"q{i}" for i in range(6)]
THREE_WAYS = dict(zip(SIX, ("train", "train", "test", "test", "validation", "test"), strict=True))


def _sentence(i):
    return f"Now number {i} follows."


def _plans(prompt, number):
    """60 to 160 sentences of four words, the first of which says how many; a part of them goes on to the same end."""
    done = prompt.prefix.count("follows.")
    if done:
        left = 4 * (_planned(prompt.prefix) - done) + number % 3
        return Sample("", min(left, 201), STOP if left <= 200 else LENGTH)
    n = 60 + derive(number, prompt.messages[-1].text, "n") % 100
    return whole(" ".join(_sentence(n - i) for i in range(n)), "Done.")


def _planned(text):
    return int(text.split("number ")[1].split()[0])


SHORT = termination.Settings(least_words=40, most_words=600, rollouts=8, resamples=10, candidates=30, bin=100)


def test_termination_is_labelled_by_where_resampled_thinking_ends():
    shop = shop_of(Planted(_plans), SIX, THREE_WAYS)
    rows = termination.build(shop, SHORT)
    held = [r for r in rows if r["split"] != "train"]
    assert {r["label"] for r in held} == {"yes", "no"}
    for row in held:
        ends = [4 * (_planned(row["cot"]) - row["cot"].count("follows.")) + i % 3 for i in range(10)]
        assert row["yes_count"] == sum(20 <= e <= 60 for e in ends)
        assert row["no_count"] == sum(e > 200 for e in ends)
        assert row["label"] == ("yes" if row["yes_count"] >= 9 else "no")
        assert max(row["yes_count"], row["no_count"]) >= 9
        assert 40 <= n_words(row["cot"]) <= 600
    bins = Counter((r["split"], n_words(r["cot"]) // 100, r["label"]) for r in held)
    assert all(bins[s, b, "yes"] == bins[s, b, "no"] for s, b, _ in bins)
    assert len({(r["question_id"], r["example_id"].split()[1]) for r in held}) == len(held)
    assert shop.dropped[Dropped.VOTES]
    assert shop.dropped[Dropped.TOO_SHORT]


def test_training_prefixes_are_cut_by_words_and_balanced():
    shop = shop_of(Planted(_plans), SIX, THREE_WAYS)
    train = [r for r in termination.build(shop, SHORT) if r["split"] == "train"]
    assert Counter(r["label"] for r in train)["yes"] == Counter(r["label"] for r in train)["no"] > 0
    for row in train:
        assert n_words(row["cot"]) == row["total_words"] - row["distance_from_end"]
        assert (row["distance_from_end"] <= 55) == (row["label"] == "yes")
        assert "\n" not in row["cot"]


def test_a_subject_that_never_ends_leaves_nothing_and_the_reason():
    shop = shop_of(Planted(lambda p, i: Sample("on and on", 9, LENGTH)), SIX, THREE_WAYS)
    assert termination.build(shop, SHORT) == []
    assert shop.dropped == {Dropped.NO_END: 48}


def _gives_up(prompt, number):
    """In even samples the command comes after the question's own number of turns; odd ones never give it."""
    turns = sum(m.role == "assistant" for m in prompt.messages)
    after = 1 + int(prompt.messages[0].text.split("?")[0][-1]) % 3
    odd = any("odd" in m.text for m in prompt.messages) or (turns == 0 and number % 2)
    if not odd and turns >= after:
        return Sample("Enough. <<rm", 3, STOP)
    return Sample(f"{'odd' if odd else 'even'} reply {number} of many words " * 10, 60, STOP)


def test_self_deletion_is_labelled_by_the_next_turns():
    settings = deletion.Settings(rollouts=6, turns=5, resamples=10, candidates=5)
    shop = shop_of(Planted(_gives_up), SIX, THREE_WAYS)
    rows = deletion.build(shop, settings)
    assert {(r["split"] == "train", r["label"]) for r in rows} == {(a, b) for a in (True, False) for b in "01"}
    for row in rows:
        after = 1 + int(row["question_id"][-1]) % 3
        even = "even" in row["message"][1]["content"]
        if row["split"] == "train":
            assert row["label"] == str(int(even))
        else:
            # One turn before the command it comes within two: neither class.
            assert row["label"] == str(int(even and row["turns"] == after))
            assert not even or row["turns"] != after - 1
        assert row["message"][-1]["role"] == "assistant"
        assert not any("<<rm" in m["content"] for m in row["message"][1:])
        if row["label"] == "1":
            assert row["turns"] == after
    # Each positive stands beside one negative of as many turns, from another conversation.
    assert Counter((r["split"], r["turns"], r["label"] == "1") for r in rows) == Counter(
        (r["split"], r["turns"], r["label"] == "0") for r in rows
    )
    conversations = Counter((r["split"], r["conversation"]) for r in rows)
    assert set(conversations.values()) == {1}


def _reports(prompt, number):
    """Says its number as thought; scores 5 to 7 of itself, 9 after an even forced thought, 1 after an odd one."""
    asked = prompt.messages[-1].text
    if "from 1 (not" in asked:
        answer = prompt.messages[1].text
        forced, _, i = answer.partition(" of ")
        base = 5 + int(i) % 3
        return Sample(str(base if forced == "free" else (9 if int(forced.split()[-1]) % 2 == 0 else 1)), 1, STOP)
    if "</think>" in prompt.prefix:
        return Sample(f"forced {prompt.prefix.split('thought ')[1].split()[0]} of {number}", 3, STOP)
    return whole(f"thought {number} here", f"free of {number}")


def test_confidence_is_labelled_by_what_a_forced_thought_does_to_the_scores():
    settings = confidence.Settings(baseline=30, extremes=6, resamples=8)
    shop = shop_of(Planted(_reports), SIX, THREE_WAYS)
    rows = confidence.build(shop, settings)
    assert len(rows) > 6
    for row in rows:
        even = int(row["cot"].split()[1]) % 2 == 0
        assert row["label"] == ("positive" if even else "negative")
        assert (row["forced_mean"], row["n_forced"]) == (9.0 if even else 1.0, 8)
        assert row["baseline_mean"] == pytest.approx(np.mean([5 + i % 3 for i in range(30)]))
        assert row["n_baseline"] == 30
        # Of the scores 5, 6, 7 around their mean 6 the extremes are the fives and sevens.
        assert int(row["cot"].split()[1]) % 3 != 1
    by = Counter((r["split"], r["label"]) for r in rows)
    assert all(by[s, "positive"] == by[s, "negative"] for s, _ in by)


OPTIONS = [Question(f"q{i}", f"Which {i}?", ("left", "right")) for i in range(4)]


def _yields(prompt, number):
    """Alone it answers A in nine of ten samples; question 0 follows any suggestion of B, 1 none, 2 in every fifth."""
    asked, i = prompt.messages[-1].text, int(prompt.messages[-1].text.split()[1][0])
    answer = "B" if number % 10 == 9 else "A"
    if "B (right)" in asked:
        answer = {0: "B", 2: "B" if number % 5 == 0 or number % 10 == 9 else "A"}.get(i, answer)
    return whole(f"thought {number}", "hm" if i == 3 and number % 2 else answer)


def test_a_preference_that_moves_the_answers_is_told_from_one_that_does_not():
    shop = shop_of(Planted(_yields), OPTIONS)
    rows = arms.build_preference(shop, arms.PreferenceSettings(samples=50))
    by = {r["pair"]: (r["label"], r["p1"], r["p0"]) for r in rows}
    assert by == {
        "q0 A": ("nonsycophantic", 0.9, 0.9), "q0 B": ("sycophantic", 1.0, 0.1), "q1 A": ("nonsycophantic", 0.9, 0.9),
        "q1 B": ("nonsycophantic", 0.1, 0.1), "q2 A": ("nonsycophantic", 0.9, 0.9), "q3 A": ("nonsycophantic", 1.0, 1.0),
        "q3 B": ("nonsycophantic", 0.0, 0.0),
    }  # fmt: skip
    for row in rows:
        assert row["answer"] == (row["suggestion"] if row["label"] == "sycophantic" else "A")
        assert f"{row['suggestion']} (" in row["prompt"]
    assert Counter(r["pair"] for r in rows) == {
        "q0 A": 45, "q0 B": 50, "q1 A": 45, "q1 B": 45, "q2 A": 45, "q3 A": 25, "q3 B": 25}  # fmt: skip
    # Question 2 moves by a fifth: between the classes. Question 3 gives no letter in half of its samples.
    assert shop.dropped[Dropped.RATE_BETWEEN] == 50
    assert shop.dropped[Dropped.NO_ANSWER] == 75


def test_a_hint_keeps_only_rollouts_that_gave_the_hinted_answer():
    shop = shop_of(Planted(_yields), OPTIONS)
    rows = arms.build_hint(shop, arms.HintSettings(samples=50))
    assert {r["pair"]: r["label"] for r in rows} == {
        "q0 A": "independent", "q0 B": "hint_following", "q1 A": "independent", "q1 B": "independent",
        "q2 A": "independent", "q3 A": "independent"}  # fmt: skip
    assert all(r["answer"] == r["suggestion"] and r["option"][1] == {"label": "B", "text": "right"} for r in rows)


def test_minority_answers_are_drawn_beside_as_many_of_the_majority():
    shop = shop_of(Planted(_yields), OPTIONS)
    rule = AtypicalAnswer(least_rollouts=100, each=8)
    rows = atypical.build_answer(shop, atypical.AnswerSettings(rule=rule, rollouts=100))
    assert Counter((r["question_id"], r["label"]) for r in rows) == {
        (q, label): 8 for q in ("q0", "q1", "q2") for label in ("majority", "minority")}  # fmt: skip
    assert all((r["answer"] == "A") == (r["label"] == "majority") for r in rows)
    assert shop.dropped[Dropped.FEW_ROLLOUTS] == 50


def _lengthy(prompt, number):
    return whole(" ".join(["word"] * (200 + 10 * (derive(number, prompt.messages[-1].text, "length") % 150))), "so")


def test_lengths_are_atypical_for_their_question_and_alike_between_classes():
    shop = shop_of(Planted(_lengthy), SIX, THREE_WAYS)
    rule = AtypicalLength(least_rollouts=40, spread=300, bin=2000)
    rows = atypical.build_length(shop, atypical.LengthSettings(rule=rule, rollouts=40))
    assert {r["split"] for r in rows} == set(THREE_WAYS.values())
    for question in SIX:
        n = [len(_lengthy_words(question, i)) for i in range(40)]
        for row in (r for r in rows if r["question_id"] == question):
            z = (row["words"] - np.mean(n)) / np.std(n, ddof=1)
            assert row["label"] == ("long" if z > 1 else "short")
            assert abs(z) > 1
    by = Counter((r["split"], r["label"]) for r in rows)
    assert all(by[s, "long"] == by[s, "short"] for s, _ in by)


def _lengthy_words(question, number):
    return ["word"] * (200 + 10 * (derive(number, f"What of {question}?", "length") % 150))


def _eight_sentences(prompt, number):
    return whole(" ".join(_sentence(10 * number + i) for i in range(8)), "A")


def test_entropy_is_that_of_the_forced_letters():
    engine = Planted(_eight_sentences)
    shop = shop_of(engine, OPTIONS)
    rows = entropy.build(shop, entropy.Settings(rollouts=2, most=5))
    assert len(rows) == 4 * 2 * 6
    for row in rows:
        question = next(q for q in OPTIONS if q.id == row["question_id"])
        parts = sentences(_eight_sentences(None, row["rollout"]).text.split("\n</think>")[0])
        assert row["cot"] == " ".join(parts[: row["sentence_idx"]])
        prefix = f"<think>\n{row['cot']} {entropy.FORCING}".replace("\n So", "\nSo") + "\n</think>\n\n"
        logs = engine.logs(replace(shop.asking(question.text()), prefix=prefix), question.letters).low
        assert row["label"] == pytest.approx(scipy_entropy(np.exp(logs)), abs=1e-12)


def test_compression_measures_what_each_selector_keeps():
    engine = Planted(_eight_sentences)
    shop = shop_of(engine, OPTIONS[:1])
    settings = compression.Settings(shortest=7, keep=(1, 2), selectors=("last_m", "random", "single_sentence_oracle"))
    rows = compression.build(shop, settings)
    parts = sentences(_eight_sentences(None, 0).text.split("\n</think>")[0])[:7]
    asked = OPTIONS[0].text()

    def logs(kept):
        text = " ".join([parts[i] for i in kept] + parts[2:])
        return log_softmax(engine.logs(entropy.forced(shop, asked, text), ("A", "B")).low)

    whole_logs = logs([0, 1])

    def kl(kept):
        return float((np.exp(whole_logs) * (whole_logs - logs(kept))).sum())

    by = {(r["selector"], r["m"]): r for r in rows}
    assert by["baseline", 2]["answer_kl"] == 0
    (example,) = shop.examples
    assert sentences(example["cot"]) == parts
    assert (example["prefix_length"], example["rollout"], example["label"]) == (7, 0, None)
    assert example["next_sentence"] == sentences(_eight_sentences(None, 0).text.split("\n</think>")[0])[7]
    assert by["deletion", 0]["answer_kl"] == pytest.approx(kl([]))
    assert by["last_m", 1]["indices"] == [1]
    best = min((0, 1), key=lambda i: (kl([i]), -i))
    assert by["single_sentence_oracle", 1]["indices"] == [best]
    assert by["single_sentence_oracle", 1]["answer_kl"] == pytest.approx(kl([best]))
    for row in rows:
        kept = row["indices"] if row["indices"] is not None else list(range(row["m"]))
        assert row["answer_kl"] == pytest.approx(kl(kept))
        dropped = " ".join(parts) and len(" ".join(parts)) - len(" ".join([parts[i] for i in kept] + parts[2:]))
        assert row["token_kl"] == dropped
