"""Drawn once: what is stored is returned, what is missing is drawn, and interruption costs nothing that was kept."""

from __future__ import annotations

import pytest

from lmassay.models.drawing import Wanted, drawn, drawn_all, prompt_of, stored_prompt
from lmassay.models.generate import InProcess
from lmassay.models.sampling import Message, Prompt, Sampling
from lmassay.storage.rollouts import opened

pytestmark = pytest.mark.tiny
A, B = Prompt.of("Start with 7."), Prompt.of("If A implies B", "then")
WARM = Sampling(0.8, max_tokens=5)


class Counted:
    """An engine that counts what it draws, and stops when told to."""

    def __init__(self, inner, stop_after=None):
        self.inner, self.stop_after, self.drawn = inner, stop_after, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def sample(self, asked, *, each, progress=None):
        def counted(at, sample):
            each(at, sample)
            self.drawn.append(asked[at])
            if len(self.drawn) == self.stop_after:
                raise KeyboardInterrupt

        self.inner.sample(asked, each=counted, progress=progress)


def test_only_missing_samples_are_drawn_and_more_of_them_change_none(tiny_model, tmp_path):
    engine = Counted(InProcess(tiny_model("llama")))
    with opened(tmp_path) as store:
        three = drawn(store, engine, A, WARM, 3, 0)
        assert len(engine.drawn) == 3
        five = drawn(store, engine, A, WARM, 5, 0)
        assert len(engine.drawn) == 5
        assert five[:3] == three
        assert drawn(store, engine, A, WARM, 2, 0) == three[:2]
        assert len(engine.drawn) == 5
    with opened(tmp_path / "other") as store:
        # Beside other prompts, in another order, and asked for twice in one call.
        both = drawn_all(store, engine, [Wanted(B, WARM, 2), Wanted(A, WARM, 5), Wanted(A, WARM, 1)], 0)
    assert both[1] == five
    assert both[2] == five[:1]
    assert len(engine.drawn) == 12


def test_an_interrupted_call_goes_on_without_drawing_a_sample_twice(tiny_model, tmp_path):
    inner = InProcess(tiny_model("llama"))
    wanted = [Wanted(A, WARM, 6), Wanted(B, WARM, 6)]
    with opened(tmp_path / "whole") as store:
        whole = drawn_all(store, inner, wanted, 0)
    first = Counted(inner, stop_after=5)
    with pytest.raises(KeyboardInterrupt), opened(tmp_path / "cut") as store:
        drawn_all(store, first, wanted, 0)
    second = Counted(inner)
    with opened(tmp_path / "cut") as store:
        assert drawn_all(store, second, wanted, 0) == whole
    assert not set(first.drawn) & set(second.drawn)
    assert len(first.drawn) + len(second.drawn) == 12


def test_another_seed_setting_or_model_is_another_sample(tiny_model, tmp_path):
    engine = Counted(InProcess(tiny_model("llama")))
    other = Counted(InProcess(tiny_model("llama_tied")))
    with opened(tmp_path) as store:
        drawn(store, engine, A, WARM, 2, 0)
        seeded = drawn(store, engine, A, WARM, 2, 1)
        drawn(store, engine, A, Sampling(0.9, max_tokens=5), 2, 0)
        drawn(store, other, A, WARM, 2, 0)
        assert len(store) == 8
        assert (len(engine.drawn), len(other.drawn)) == (6, 2)
        assert drawn(store, engine, A, WARM, 2, 1) == seeded


def test_nothing_wanted_is_nothing_drawn(tiny_model, tmp_path):
    engine = Counted(InProcess(tiny_model("llama")))
    with opened(tmp_path) as store:
        assert drawn_all(store, engine, [], 0) == []
        assert drawn(store, engine, A, WARM, 0, 0) == []
    assert engine.drawn == []


def test_a_stored_prompt_is_the_prompt_again():
    prompt = Prompt((Message("system", "s"), Message("user", "a")), "<think>\n")
    assert prompt_of(stored_prompt(prompt)) == prompt
