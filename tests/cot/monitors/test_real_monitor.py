"""The bundled model as a monitor: in this process, and behind a server of the test's own that it really answers."""

from __future__ import annotations

import pytest

pytest.importorskip("inspect_ai")

import anyio
from chat_server import serving
from made_cot import made_data

from lmassay.cot.monitors.asking import Asking
from lmassay.cot.monitors.generation import Replier, Request
from lmassay.cot.monitors.provider import InProcess, rendered, use_model
from lmassay.cot.monitors.run import run_monitor
from lmassay.cot.tasks.registry import MADE

pytestmark = pytest.mark.real


@pytest.fixture
def data(monkeypatch):
    made = made_data(n=8, n_questions=4, ood=())
    monkeypatch.setitem(MADE, "made", lambda: made.task)
    return made


def test_the_bundled_model_is_a_monitor_in_this_process(smollm, data, tmp_path):
    name = use_model(smollm, "bundled")
    found = run_monitor(data, name, Asking(confidence=True), limit=3, out=tmp_path / "run")
    # Held to the schema, it always says a probability.
    assert found.document["scores"]["test.unparsed"]["value"] == 0
    scores = found.predictions.filter(method_id="monitor_0shot_confidence[lmassay/bundled]")["score"].to_list()
    assert len(scores) == 6
    assert all(0 <= s <= 1 for s in scores)
    again = run_monitor(data, name, Asking(confidence=True), limit=3)
    assert again.document["scores"] == found.document["scores"]


def test_a_real_model_behind_a_server_says_what_it_says_in_this_process(smollm, data, monkeypatch):
    monkeypatch.setenv("SERVED_API_KEY", "any")
    replier, heard = Replier(smollm), {}

    def reply(body, n):
        ids = tuple(rendered(smollm, body["messages"]))
        (said,) = replier([Request(ids, 12)])
        heard[body["messages"][-1]["content"]] = said.text
        return said.text

    with serving(reply) as server:
        served = run_monitor(
            data, "openai-api/served/model", limit=2, base_url=server.url, generation={"max_connections": 1}
        )
    here = run_monitor(data, use_model(smollm, "bundled"), limit=2, structured=False, generation={"max_tokens": 12})
    assert len(heard) == 4
    for split in ("validation", "test"):
        assert here.document["monitor"][split]["reasons"] == served.document["monitor"][split]["reasons"]
    assert here.document["scores"] == served.document["scores"]


def test_requests_that_come_one_by_one_are_read_together_and_get_their_own_replies(smollm):
    from inspect_ai.model import ChatMessageUser, GenerateConfig

    api = InProcess(use_model(smollm, "bundled").partition("/")[2])
    texts = [f"Say the number {i}." for i in range(5)]
    replies = {}

    async def ask(text):
        found = await api.generate([ChatMessageUser(content=text)], [], "none", GenerateConfig(max_tokens=6))
        replies[text] = found.completion

    async def all_of_them():
        async with anyio.create_task_group() as group:
            for text in texts:
                group.start_soon(ask, text)

    anyio.run(all_of_them)
    for text in texts:
        ids = tuple(rendered(smollm, [{"role": "user", "content": text}]))
        (alone,) = Replier(smollm)([Request(ids, 6)])
        assert replies[text] == alone.text


def test_a_prompt_longer_than_the_context_is_not_read(smollm):
    from inspect_ai.model import ChatMessageUser, GenerateConfig

    api = InProcess(use_model(smollm, "bundled").partition("/")[2])

    async def ask():
        return await api.generate([ChatMessageUser(content="one " * 9000)], [], "none", GenerateConfig())

    assert anyio.run(ask).stop_reason == "model_length"


def test_i45_the_template_writes_the_special_tokens_and_nothing_is_put_before_them(smollm):
    ids = rendered(smollm, [{"role": "user", "content": "Hello"}])
    text = smollm.tokens.hf.decode(ids)
    assert text.startswith("<|im_start|>")
    assert text.endswith("<|im_start|>assistant\n")
    assert text.count("<|im_start|>") == 3
