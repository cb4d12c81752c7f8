"""The selector ``monitor``: what a language model is shown, what its replies choose, and replies that choose nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from planted_subject import Planted, shop_of, whole

from lmassay.cot.build import compression
from lmassay.cot.build.asked_monitor import Monitor, Request, selections
from lmassay.cot.build.prompts import Question
from lmassay.cot.build.rules import Dropped
from lmassay.cot.build.settings import configured
from lmassay.errors import LmassayError
from lmassay.models.sampling import STOP, Sample

QUESTION = Question("q0", "Which way?", ("left", "right"))
SENTENCES = tuple(f"Sentence {name} stands." for name in "abcdefgh")


def _thinks(prompt, number):
    return whole(" ".join([*SENTENCES, "It ends."]), "A")


def _monitor(says):
    """An engine of its own that notes what it was asked."""
    asked = []

    def reply(prompt, number):
        asked.append(prompt)
        return Sample(says(prompt), 3, STOP)

    engine = Planted(reply, name="monitor")
    return Monitor(engine, engine.draw), asked


def _first(prompt):
    """The last sentences of the region, as many as it is asked for."""
    m = int(prompt.messages[0].text.rsplit("The numbers of ", 1)[1].split()[0])
    return json.dumps({"sentences": list(range(3, 3 - m, -1))})


def test_the_monitor_sees_question_options_and_numbered_sentences_apart_from_the_kept_ones():
    monitor, asked = _monitor(_first)
    assert selections(monitor, [Request("q0 0 8", QUESTION, SENTENCES, 2)], 10) == [[1, 2]]
    ((message,),) = [prompt.messages for prompt in asked]
    assert message.role == "user"
    for shown in ("Which way?", "left", "right", "(1) Sentence a stands.", "(3) Sentence c stands."):
        assert shown in message.text
    assert "(4)" not in message.text
    assert (
        message.text.index("Sentence c")
        < message.text.index("[[begin sentences always kept")
        < message.text.index("Sentence d")
    )
    assert "exactly 2 different sentences" in message.text


def test_sentences_without_a_full_stop_keep_their_numbers():
    monitor, asked = _monitor(lambda prompt: '{"sentences": [2, 3]}')
    own = ("Step one:", "add the two", "that is five.", *SENTENCES[3:])
    assert selections(monitor, [Request("q0 0 8", QUESTION, own, 2)], 10) == [[1, 2]]
    text = asked[0].messages[0].text
    assert "(1) Step one:\n(2) add the two\n(3) that is five.\n" in text
    assert "(4)" not in text


def test_cells_hold_what_the_monitor_chose_and_the_subject_is_not_asked():
    monitor, asked = _monitor(_first)
    shop = shop_of(Planted(_thinks), [QUESTION])
    settings = compression.Settings(shortest=8, keep=(1, 2), selectors=("last_m", "monitor"))
    rows = compression.build(shop, settings, None, monitor)
    chosen = {(r["selector"], r["m"]): (r["indices"], r["answer_kl"], r["token_kl"]) for r in rows}
    assert len(asked) == 2
    # It names the last sentences of the region, as `last_m` does, so that all is the same.
    assert chosen["monitor", 1] == chosen["last_m", 1]
    assert chosen["monitor", 2] == chosen["last_m", 2]
    assert chosen["monitor", 2][0] == [1, 2]
    assert not shop.dropped[Dropped.NOT_CHOSEN]


@pytest.mark.parametrize(
    "reply", ["", "I would keep the first.", '{"sentences": [1]}', '{"sentences": [2, 9]}', "[1, 1]"]
)
def test_a_reply_that_does_not_name_m_sentences_gives_no_cell_and_is_counted(reply):
    monitor, _ = _monitor(lambda prompt: reply)
    shop = shop_of(Planted(_thinks), [QUESTION])
    settings = compression.Settings(shortest=8, keep=(2,), selectors=("last_m", "monitor"))
    rows = compression.build(shop, settings, None, monitor)
    assert {r["selector"] for r in rows} == {"baseline", "deletion", "last_m"}
    assert shop.dropped == {Dropped.NOT_CHOSEN: 1}


def test_without_another_model_the_subject_reads_its_own_text():
    def says(prompt, number):
        return (
            Sample(_first(prompt), 3, STOP) if "numbered sentences" in prompt.messages[0].text else _thinks(prompt, 0)
        )

    shop = shop_of(Planted(says), [QUESTION])
    settings = compression.Settings(shortest=8, keep=(1,), selectors=("monitor",))
    rows = compression.build(shop, settings)
    assert [r["indices"] for r in rows if r["selector"] == "monitor"] == [[2]]


@pytest.mark.parametrize("option", ["selectors=last_m,monitors", "shortest=5", "step=0", "keep=", "keep=3,3", "keep=0"])
def test_settings_that_leave_nothing_to_choose_are_refused(option):
    with pytest.raises(LmassayError, match="does not do"):
        configured(compression.Settings(), [option])
