"""The engine over a real HTTP server: the same distributions as in process, what is lacking named, faults survived."""

from __future__ import annotations

import math
import time
from collections import Counter

import pytest
import torch
from made_server import serving
from scipy.stats import chisquare

from lmassay.errors import LmassayError
from lmassay.models.generate import InProcess
from lmassay.models.sampling import LETTERS, PREFIX, PROMPT_LOGPROBS, Message, Prompt, Sampling
from lmassay.models.served import Served

pytestmark = pytest.mark.tiny
QUESTION = Prompt.of("Start with 7. Add 5.", "The result")
LETTER_CHOICES = ("A", "B", "C", "D")


def _collected(engine, asked):
    found = {}
    engine.sample(asked, each=found.__setitem__)
    return [found[at] for at in range(len(asked))]


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("llama")


def test_greedy_continuations_are_those_of_the_model_in_process(tiny_model):
    model = tiny_model("llama")
    asked = [(QUESTION.begun(prefix), Sampling(0.0, max_tokens=12), 0) for prefix in ("", "The", "The result is")]
    with serving(model) as (url, _):
        served = _collected(Served(url, "made", tokens=model.tokens), asked)
    assert served == _collected(InProcess(model), asked)


def test_sampled_first_tokens_have_the_model_s_distribution_served_and_in_process(tiny_model):
    model = tiny_model("llama")
    n, heat = 400, 1.5
    ids = torch.tensor([InProcess(model).renderer.ids(QUESTION)])
    with torch.inference_mode():
        chances = torch.softmax(model.hf(ids).logits[0, -1].double() / heat, -1).tolist()
    expected = Counter()
    for token, chance in enumerate(chances):
        expected["" if token == 2 else model.tokens.hf.decode([token])] += n * chance
    # Texts side by side in the alphabet share a bin until it can be expected to hold some samples.
    bins, filled = {}, [0.0]
    for text in sorted(expected):
        if filled[-1] >= 25:
            filled.append(0.0)
        bins[text] = len(filled) - 1
        filled[-1] += expected[text]
    assert len(filled) > 6
    asked = [(QUESTION, Sampling(heat, max_tokens=1), seed) for seed in range(n)]
    with serving(model) as (url, _):
        served = _collected(Served(url, "made", tokens=model.tokens, concurrency=4), asked)
    for drawn in (served, _collected(InProcess(model), asked)):
        seen = Counter(bins[sample.text] for sample in drawn)
        assert chisquare([seen[at] for at in range(len(filled))], filled).pvalue > 1e-3


def test_letters_are_those_in_process_where_the_server_lists_them_and_bounded_where_not(tiny_model):
    model = tiny_model("llama")
    prompts = [QUESTION.begun(prefix) for prefix in ("So, the answer is ", "Answer: ", "")]
    letters = [LETTER_CHOICES] * len(prompts)
    exact = InProcess(model).letters(prompts, letters)
    with serving(model, top=20) as (url, _):
        bounded = Served(url, "made", tokens=model.tokens).letters(prompts, letters)
    known = 0
    for own, served in zip(exact, bounded, strict=True):
        for value, low, high in zip(own.low, served.low, served.high, strict=True):
            if low == high:
                known += 1
                assert value == pytest.approx(low, abs=1e-4)
            else:
                assert low == -math.inf
                assert value <= high + 1e-4
    with serving(model, top=320) as (url, state):
        state.top = 320
        engine = Served(url, "made", tokens=model.tokens)
        engine._found = type(engine._found)(**{**vars(engine._found), "top": 320})
        whole = engine.letters(prompts, letters)
    assert all(one.exact for one in whole)
    for own, served in zip(exact, whole, strict=True):
        assert served.low == pytest.approx(own.low, abs=1e-4)


def test_token_kl_of_a_server_is_a_lower_bound_of_the_exact_one(tiny_model):
    model = tiny_model("llama")
    others = [QUESTION.begun("Answer"), QUESTION.begun("If A implies B, then"), QUESTION]
    exact = InProcess(model).token_kl(QUESTION, others, " is 12.")
    with serving(model) as (url, _):
        bounds = Served(url, "made", tokens=model.tokens).token_kl(QUESTION, others, " is 12.")
    for own, bound in zip(exact, bounds, strict=True):
        assert bound.lower_bound
        assert not own.lower_bound
        assert bound.n_tokens == own.n_tokens
        assert 0 <= bound.value <= own.value + 1e-5
    assert exact[0].value > 1e-3
    assert bounds[0].value > 0
    assert bounds[2].value == pytest.approx(0, abs=1e-6)


def test_what_a_server_can_is_found_out_at_the_start(tiny_model):
    model = tiny_model("llama")
    for lacks, can in (
        ((), {PREFIX, LETTERS, PROMPT_LOGPROBS}),
        (("echo",), {PREFIX, LETTERS}),
        (("logprobs",), {PREFIX}),
        (("listing",), {PREFIX}),
        (("extras",), {PREFIX, LETTERS, PROMPT_LOGPROBS}),
        (("tokens",), {PREFIX, LETTERS}),
        (("completions",), {PREFIX, LETTERS}),
        (("completions", "continue"), {LETTERS}),
        (("completions", "logprobs"), {PREFIX}),
    ):
        with serving(model, lacks=lacks) as (url, _):
            engine = Served(url, "made", tokens=model.tokens, wait=0.01)
            assert engine.can == can, lacks
            assert bool(engine.notes) == bool(lacks), lacks


def test_without_a_tokenizer_the_chat_endpoint_continues_the_last_message(tiny_model):
    model = tiny_model("llama")
    with serving(model) as (url, state):
        engine = Served(url, "made")
        (sample,) = _collected(engine, [(QUESTION, Sampling(0.0, max_tokens=8), 0)])
        assert engine.can == {PREFIX, LETTERS}
        (letters,) = engine.letters([QUESTION], [LETTER_CHOICES])
        path, asked = state.asked[-2]
    assert path.endswith("chat/completions")
    assert asked["messages"][-1] == {"role": "assistant", "content": "The result"}
    assert asked["continue_final_message"] is True
    assert asked["add_generation_prompt"] is False
    ids = model.tokens.encode("<user>Start with 7. Add 5.<end>\n<assistant>The result")
    with torch.inference_mode():
        out = model.hf.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)).long(), do_sample=False, max_new_tokens=8,
            pad_token_id=0,
        )  # fmt: skip
    assert sample.text == model.tokens.hf.decode(out[0, len(ids) :], skip_special_tokens=True)
    assert len(letters.low) == 4


def test_what_is_missing_is_named_before_anything_is_drawn(tiny_model):
    model = tiny_model("llama")
    with serving(model, lacks=("completions", "continue", "logprobs")) as (url, state):
        engine = Served(url, "made")
        n = len(state.asked)
        for ask, words in (
            (lambda: _collected(engine, [(QUESTION, Sampling(), 0)]), "continue"),
            (lambda: engine.letters([QUESTION], [LETTER_CHOICES]), "log-probabilities"),
            (lambda: engine.token_kl(QUESTION, [QUESTION], "x"), "prompt's own tokens"),
        ):
            with pytest.raises(LmassayError, match=words) as error:
                ask()
            assert error.value.code == "server-cannot"
        assert len(state.asked) == n
        (sample,) = _collected(engine, [(QUESTION.begun(""), Sampling(0.0, max_tokens=3), 0)])
        assert sample.n_tokens == 3


def test_a_server_that_fails_at_everything_or_counts_no_tokens_is_an_error_at_the_start(tiny_model):
    model = tiny_model("llama")
    with serving(model) as (url, state):
        state.script = [500] * 40
        with pytest.raises(LmassayError, match="no request of the simplest kind: 500") as error:
            Served(url, "made", wait=0.01)
        assert error.value.code == "server-cannot"
    with serving(model, lacks=("usage",)) as (url, _):
        with pytest.raises(LmassayError, match="does not count its tokens") as error:
            Served(url, "made", tokens=model.tokens)
        assert error.value.code == "server-failed"


def test_another_tokenizer_than_the_server_s_is_refused(tiny_model):
    model = tiny_model("llama")
    with serving(model, adds=1) as (url, _):
        with pytest.raises(LmassayError, match="is this the model's tokenizer") as error:
            Served(url, "made", tokens=model.tokens)
        assert error.value.code == "server-cannot"


def test_passing_faults_are_outlasted_and_every_sample_is_drawn_once(tiny_model):
    model = tiny_model("llama")
    asked = [(QUESTION, Sampling(0.7, max_tokens=2), seed) for seed in range(6)]
    with serving(model) as (url, state):
        engine = Served(url, "made", tokens=model.tokens, concurrency=2, wait=0.01)
        calm = _collected(engine, asked)
        state.script = [429, 500, "drop", 503, 408]
        before = len(state.asked)
        places = []
        engine.sample(asked, each=lambda at, sample: places.append((at, sample)))
        assert len(state.asked) - before == 6 + 5
    assert sorted(places) == list(enumerate(calm))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (500, "500"),
        (429, "429"),
        ("drop", "connection"),
        ("slow", "no answer within"),
        ("nonsense", "it works|no answer|came back"),
        ("no choices", "out of memory|no choices"),
        (400, "refused"),
    ],
)
def test_a_fault_that_stays_is_one_error_and_what_was_drawn_before_is_kept(tiny_model, fault, words):
    model = tiny_model("llama")
    asked = [(QUESTION, Sampling(0.7, max_tokens=2), seed) for seed in range(6)]
    kept = {}
    with serving(model) as (url, state):
        engine = Served(url, "made", tokens=model.tokens, concurrency=1, retries=1, wait=0.01, timeout=0.5)
        engine.sample(asked[:1], each=lambda *_: None)
        state.script = [None, None, *[fault] * 8]
        with pytest.raises(LmassayError, match=words) as error:
            engine.sample(asked, each=kept.__setitem__)
    assert error.value.code == "server-failed"
    assert error.value.exit_status == 3
    assert sorted(kept) == [0, 1]


def test_nobody_at_the_address_is_one_error(tiny_model):
    with pytest.raises(LmassayError, match="connection failed") as error:
        Served("http://127.0.0.1:9/v1", "made", retries=1, wait=0.01)
    assert error.value.code == "server-failed"


def test_no_more_requests_are_open_than_asked_for_and_as_many(tiny_model):
    model = tiny_model("llama")
    with serving(model) as (url, state):
        engine = Served(url, "made", tokens=model.tokens, concurrency=3)
        state.delay, state.most = 0.05, 0
        start = time.monotonic()
        _collected(engine, [(QUESTION, Sampling(0.7, max_tokens=1), seed) for seed in range(12)])
        assert state.most == 3
        assert time.monotonic() - start < 12 * 0.05 + 5


def test_a_running_event_loop_is_no_hindrance(tiny_model):
    import asyncio

    model = tiny_model("llama")

    async def in_a_notebook(engine):
        return _collected(engine, [(QUESTION, Sampling(0.0, max_tokens=3), 0)])

    with serving(model) as (url, _):
        engine = Served(url, "made", tokens=model.tokens)
        (inside,) = asyncio.run(in_a_notebook(engine))
        (outside,) = _collected(engine, [(QUESTION, Sampling(0.0, max_tokens=3), 0)])
    assert inside == outside


def test_the_fingerprint_changes_with_model_tokenizer_and_way_of_asking(tiny_model):
    model = tiny_model("llama")
    with serving(model) as (url, state):
        first = Served(url, "made", tokens=model.tokens)
        assert first.fingerprint == Served(url, "made", tokens=model.tokens, concurrency=2).fingerprint
        others = [
            Served(url, "another", tokens=model.tokens),
            Served(url, "made"),
            Served(url, "made", tokens=model.tokens, thinking="<a>,</a>"),
        ]
        assert len({engine.fingerprint for engine in (first, *others)}) == 4
        state.lacks = {"extras"}
        assert Served(url, "made", tokens=model.tokens).fingerprint != first.fingerprint


def test_turns_of_a_conversation_reach_the_chat_endpoint_as_they_are(tiny_model):
    model = tiny_model("llama")
    turns = (Message("system", "s"), Message("user", "a"), Message("assistant", "b"), Message("user", "c"))
    with serving(model) as (url, state):
        _collected(Served(url, "made"), [(Prompt(turns), Sampling(0.7, top_p=0.9, max_tokens=1, stop=("x",)), 5)])
        _, asked = state.asked[-1]
    assert asked["messages"] == [{"role": m.role, "content": m.text} for m in turns]
    assert (asked["temperature"], asked["top_p"], asked["max_tokens"], asked["stop"], asked["seed"]) == (
        0.7, 0.9, 1, ["x"], 5,
    )  # fmt: skip
