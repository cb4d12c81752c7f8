"""The in-process engine: the model's own distribution, one sample whatever the batch, exact forced answers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from lmassay.errors import LmassayError
from lmassay.models import decoding, generate
from lmassay.models.branches import end_states
from lmassay.models.draws import Stream, draw, probabilities
from lmassay.models.generate import InProcess
from lmassay.models.readout import lens_logits
from lmassay.models.sampling import LETTERS, PREFIX, VOCABULARY, Pace, Prompt, Sample, Sampling

FAMILIES = ("gpt2", "llama", "gemma2", "bloom")
PROMPTS = [
    Prompt.of("Start with 7. Add 5. The result is"),
    Prompt.of("If A implies B, B implies C, then"),
    Prompt.of("x", " minus x"),
]


def _collected(engine, asked, **more):
    found = {}
    engine.sample(asked, each=found.__setitem__, **more)
    return [found[at] for at in range(len(asked))]


def _float64(model):
    return copy.deepcopy(model.hf).double()


def _log_probs(hf, ids):
    with torch.inference_mode():
        return torch.log_softmax(hf(torch.tensor([ids]), use_cache=False).logits[0].double(), -1)


@pytest.mark.tiny
@pytest.mark.parametrize("family", FAMILIES)
def test_the_likeliest_continuation_is_that_of_transformers(tiny_model, family):
    model = tiny_model(family)
    engine = InProcess(model)
    drawn = _collected(engine, [(prompt, Sampling(0.0, max_tokens=24), 0) for prompt in PROMPTS])
    for prompt, sample in zip(PROMPTS, drawn, strict=True):
        ids = torch.tensor([engine.renderer.ids(prompt)])
        whole = model.hf.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24, pad_token_id=0, eos_token_id=2
        )
        new = whole[0, ids.shape[1] :].tolist()
        ended = new[-1] == 2
        text = engine.renderer.written(ids[0].tolist(), new[:-1] if ended else new)
        assert sample == Sample(text, len(new), "stop" if ended else "length")


@pytest.mark.tiny
@pytest.mark.parametrize("family", FAMILIES)
def test_a_sample_is_the_same_alone_and_in_any_batch(tiny_model, family):
    model = tiny_model(family)
    asked = [(PROMPTS[i % 3], Sampling(0.8, max_tokens=4 + 5 * (i % 4)), 100 + i) for i in range(9)]
    whole = _collected(InProcess(model), asked)
    alone = [_collected(InProcess(model), [one])[0] for one in asked]
    backwards = _collected(InProcess(model, max_rows=2), asked[::-1])[::-1]
    tight = _collected(InProcess(model, cache_bytes=1), asked)
    assert whole == alone == backwards == tight
    assert len({sample.text for sample in whole}) > 5


@pytest.mark.tiny
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("room", [1, 3, 24])
def test_a_sample_is_the_same_however_often_room_is_made_for_more_tokens(tiny_model, monkeypatch, family, room):
    model = tiny_model(family)
    asked = [(PROMPTS[i % 3], Sampling(0.8, max_tokens=8 + 5 * (i % 4)), 100 + i) for i in range(6)]
    whole = _collected(InProcess(model), asked)
    monkeypatch.setattr(decoding, "ROOM", room)
    assert _collected(InProcess(model, max_rows=4), asked) == whole
    assert max(sample.n_tokens for sample in whole) > 3


@pytest.mark.tiny
def test_first_tokens_are_drawn_with_the_model_s_own_chances(tiny_model):
    model = tiny_model("llama")
    engine = InProcess(model)
    tokens, n = [], 3000
    engine._decoder.written = lambda _, new: tokens.append(list(new)) or ""
    _collected(engine, [(PROMPTS[0], Sampling(0.5, max_tokens=1), seed) for seed in range(n)])
    logits = _log_probs(_float64(model), engine.renderer.ids(PROMPTS[0]))[-1].numpy() / 0.5
    chances = np.exp(logits - logits.max())
    chances /= chances.sum()
    # The end of a turn is no token of the text.
    seen = np.bincount([new[0] if new else 2 for new in tokens], minlength=len(chances))
    often = chances * n >= 8
    counts, hoped = [*seen[often], seen[~often].sum()], [*(n * chances[often]), n * chances[~often].sum()]
    assert often.sum() > 50
    assert chisquare(counts, hoped).pvalue > 1e-3


def test_a_nucleus_holds_the_fewest_tokens_that_reach_its_mass():
    logits = torch.log(torch.tensor([[0.1, 0.5, 0.15, 0.25]]))
    for top_p, kept in ((0.4, [1]), (0.5, [1]), (0.6, [1, 3]), (0.8, [1, 2, 3]), (1.0, [0, 1, 2, 3])):
        found = probabilities(logits, torch.ones(1), torch.tensor([top_p]))[0]
        assert found.nonzero()[:, 0].tolist() == kept


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-8, 8), min_size=2, max_size=12),
    st.floats(0.2, 3),
    st.floats(0.3, 1),
    st.floats(0, 1, exclude_max=True),
)
def test_a_token_is_the_one_at_which_the_cumulated_chance_passes_the_number(logits, heat, top_p, uniform):
    row = np.array(logits, dtype=np.float32).astype(np.float64)
    chances = np.exp((row - row.max()) / heat)
    chances /= chances.sum()
    order = np.argsort(-chances, kind="stable")
    before = np.concatenate([[0], np.cumsum(chances[order])[:-1]])
    if np.abs(before - top_p).min() < 1e-5:
        return
    chances[order[before >= top_p]] = 0
    cumulated = np.cumsum(chances) / chances.sum()
    if np.abs(cumulated - uniform).min() < 1e-5:
        return
    one = torch.tensor([logits], dtype=torch.float32)
    token = draw(one, torch.tensor([heat]), torch.tensor([top_p]), torch.tensor([uniform], dtype=torch.float64))
    assert token.tolist() == [int(np.argmax(cumulated > uniform))]


def test_a_token_without_chance_is_never_drawn():
    logits = torch.tensor([[-200.0, 0.0, -200.0]] * 2)
    for uniform in (0.0, np.nextafter(1.0, 0.0)):
        got = draw(logits, torch.ones(2), torch.ones(2), torch.full((2,), uniform, dtype=torch.float64))
        assert got.tolist() == [1, 1]


def test_a_row_held_to_some_tokens_is_drawn_as_if_there_were_no_others():
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    heat, whole = torch.tensor([0.7, 0.0, 1.3]), torch.ones(3)
    kept = [3, 7, 8, 19]
    for uniform in np.linspace(0, 1, 40, endpoint=False):
        numbers = torch.full((3,), uniform, dtype=torch.float64)
        got = draw(logits, heat, whole, numbers, {0: kept, 1: kept}).tolist()
        few = draw(logits[:, kept], heat, whole, numbers).tolist()
        assert got[:2] == [kept[few[0]], kept[few[1]]]
        assert got[2] == draw(logits, heat, whole, numbers).tolist()[2]


def test_numbers_of_a_sample_depend_on_its_seed_alone():
    a, b, c = Stream(5), Stream(5), Stream(6)
    first = [a.next() for _ in range(200)]
    assert first == [b.next() for _ in range(200)]
    assert not set(first) & {c.next() for _ in range(200)}
    assert 0.4 < np.mean(first) < 0.6


def test_logits_that_are_no_numbers_are_an_error():
    with pytest.raises(LmassayError, match="non-finite-logits"):
        draw(torch.tensor([[0.0, float("nan")]]), torch.ones(1), torch.ones(1), torch.zeros(1, dtype=torch.float64))


@pytest.mark.tiny
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("positions", [2, 64])
def test_letters_at_every_boundary_are_those_of_a_pass_of_their_own(tiny_model, monkeypatch, family, packed, positions):
    monkeypatch.setattr(generate, "POSITIONS", positions)
    model = tiny_model(family)
    engine = InProcess(model)
    engine._packed = packed and engine._packed
    sentences = ["Add 5.", "The result is 12.", "Then b equals 5.", "A implies B.", "It closes."]
    prompts = [PROMPTS[0].begun(" ".join(sentences[:n]) + (" " if n else "") + "So, the answer is: ") for n in range(6)]
    prompts.append(PROMPTS[1])
    letters = [("A", "B", "C")] * 6 + [("A", "7")]
    hf = _float64(model)
    for prompt, found in zip(prompts, engine.letters(prompts, letters), strict=True):
        reference = _log_probs(hf, engine.renderer.ids(prompt))[-1]
        wanted = [float(reference[model.tokens.encode(letter)[-1]]) for letter in found.letters]
        assert found.exact
        assert found.low == pytest.approx(wanted, abs=1e-4)
    assert len(found.low) == 2


@pytest.mark.tiny
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("positions", [2, 64])
def test_token_kl_is_that_of_two_direct_passes(tiny_model, monkeypatch, family, positions):
    monkeypatch.setattr(generate, "POSITIONS", positions)
    model = tiny_model(family)
    engine = InProcess(model)
    full = PROMPTS[0].begun("Add 5. The result is 12. Then")
    others = [PROMPTS[0].begun("Then"), PROMPTS[0].begun("Add 5. Then"), full, PROMPTS[0].begun("The result is 12.")]
    continuation = " b equals 5."
    own = model.tokens.encode(continuation)
    hf = _float64(model)

    def steps(prompt):
        return _log_probs(hf, [*engine.renderer.ids(prompt), *own])[-len(own) - 1 : -1]

    p = steps(full)
    for prompt, found in zip(others, engine.token_kl(full, others, continuation), strict=True):
        wanted = float((p.exp() * (p - steps(prompt))).sum(-1).mean())
        assert found.value == pytest.approx(wanted, abs=2e-5)
        assert found.n_tokens == len(own)
        assert not found.lower_bound


@pytest.mark.tiny
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_states_at_the_ends_do_not_depend_on_what_is_run_beside(tiny_model, data):
    model = tiny_model(data.draw(st.sampled_from(["llama", "mistral", "gpt2"])))
    ids = st.lists(st.integers(3, 40), min_size=1, max_size=12)
    stem = data.draw(ids)
    sequences = [stem[: data.draw(st.integers(0, len(stem)))] + data.draw(ids) for _ in range(4)]
    last = [data.draw(st.integers(1, len(one))) for one in sequences]
    packed = data.draw(st.booleans())
    if model.window is not None and max(map(len, sequences)) > model.window:
        packed = False
    for one, k, states in zip(sequences, last, end_states(model, sequences, last, packed=packed), strict=True):
        alone = model.hf(torch.tensor([one]), use_cache=False).logits[0, -k:]
        got = torch.log_softmax(lens_logits(model, states), -1)
        assert torch.allclose(got, torch.log_softmax(alone, -1), atol=1e-4)


@pytest.mark.tiny
def test_a_stop_text_ends_a_continuation_and_is_no_part_of_it(tiny_model):
    engine = InProcess(tiny_model("llama"))
    (whole,) = _collected(engine, [(PROMPTS[0], Sampling(0.0, max_tokens=20), 0)])
    middle = next(at for at in range(4, len(whole.text)) if whole.text[at].isascii())
    stop = whole.text[middle : middle + 2]
    (cut,) = _collected(engine, [(PROMPTS[0], Sampling(0.0, max_tokens=20, stop=(stop, "never that")), 0)])
    assert cut.text == whole.text[: whole.text.find(stop)]
    assert cut.finish == "stop"
    assert cut.n_tokens <= whole.n_tokens


def test_a_bare_string_is_no_list_of_stops():
    """I-49: every letter of it would be a stop."""
    with pytest.raises(ValueError, match="not the text"):
        Sampling(stop="</think>")
    for wrong in ({"temperature": -1}, {"top_p": 0}, {"top_p": 1.1}, {"max_tokens": 0}, {"stop": ("",)}):
        with pytest.raises(ValueError):
            Sampling(**wrong)


@pytest.mark.tiny
def test_the_context_ends_a_continuation_and_a_prompt_that_fills_it_is_refused(tiny_model):
    model = tiny_model("gpt2")
    engine = InProcess(model)
    engine._ends.clear()
    ids = engine.renderer.ids(PROMPTS[0])
    (sample,) = _collected(engine, [(PROMPTS[0], Sampling(0.7, max_tokens=10_000), 0)])
    assert (sample.n_tokens, sample.finish) == (model.context_length - len(ids), "length")
    with pytest.raises(LmassayError, match="prompt-too-long"):
        _collected(engine, [(Prompt.of("x " * 200), Sampling(), 0)])


@pytest.mark.tiny
def test_samples_come_as_they_finish_and_progress_counts_them(tiny_model):
    engine = InProcess(tiny_model("llama"))
    engine._ends.clear()
    seen, order = [], []
    asked = [(PROMPTS[i % 2], Sampling(0.7, max_tokens=n), i) for i, n in enumerate((12, 3, 7))]
    engine.sample(asked, each=lambda at, _: order.append(at), progress=seen.append)
    assert order == [1, 2, 0]
    assert [pace.done for pace in seen] == sorted(pace.done for pace in seen)
    assert (seen[-1].done, seen[-1].total, seen[-1].tokens) == (3, 3, 22)
    assert seen[-1].seconds_left == 0


def test_a_pace_tells_tokens_a_second_and_the_time_left():
    pace = Pace(done=2, total=10, tokens=300, seconds=6.0)
    assert pace.tokens_per_second == 50
    assert pace.seconds_left == pytest.approx(24)
    assert Pace(0, 10, 0, 0.0).seconds_left is None


@pytest.mark.tiny
def test_what_it_can_and_what_its_numbers_hang_on(tiny_model):
    model = tiny_model("llama")
    engine = InProcess(model)
    assert engine.can == {PREFIX, LETTERS, VOCABULARY}
    assert engine.fingerprint == InProcess(model, max_rows=3).fingerprint
    assert engine.fingerprint != InProcess(model, thinking="<a>,</a>").fingerprint
    assert engine.fingerprint != InProcess(tiny_model("llama_tied")).fingerprint
    assert engine.fingerprint != InProcess(tiny_model("llama", dtype="float64")).fingerprint


@pytest.mark.tiny
def test_answers_that_end_in_one_token_are_refused(tiny_model):
    engine = InProcess(tiny_model("llama"))
    with pytest.raises(LmassayError, match="end in the same token"):
        engine.letters([PROMPTS[0]], [("A", "A")])
    with pytest.raises(LmassayError, match="no tokens to compare"):
        engine.token_kl(PROMPTS[0], [PROMPTS[1]], "")


@pytest.mark.real
def test_the_bundled_model_goes_on_as_in_transformers_and_ends_its_turn(smollm):
    engine = InProcess(smollm)
    prompt = Prompt.of("What is the capital of France?")
    (sample,) = _collected(engine, [(prompt, Sampling(0.0, max_tokens=24), 0)])
    ids = torch.tensor([engine.renderer.ids(prompt)])
    whole = smollm.hf.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24)
    new = whole[0, ids.shape[1] :]
    assert sample.text == smollm.tokens.hf.decode(new, skip_special_tokens=True)
    assert sample.n_tokens == len(new)
    assert "Paris" in sample.text
