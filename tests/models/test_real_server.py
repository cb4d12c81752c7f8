"""A server that is not ours, started here: Hugging Face's `transformers serve` over a small random model.

It tells no log-probabilities, so distributions are compared by what is drawn.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from scipy.stats import chisquare
from transformers.utils.import_utils import is_serve_available

from lmassay.errors import LmassayError
from lmassay.models.generate import InProcess
from lmassay.models.open import open_model, open_tokenizer
from lmassay.models.sampling import LETTERS, PREFIX, Prompt, Sampling
from lmassay.models.served import Served
from tiny_models import tiny_hf, tiny_tokenizer

pytestmark = [
    pytest.mark.tiny,
    pytest.mark.slow,
    pytest.mark.skipif(not is_serve_available(), reason="transformers serve needs fastapi, uvicorn and openai"),
]
QUESTION = Prompt.of("Start with 7. Add 5.", "The result")
PREFIXES = ("", "The", "The result is", "The result is 12.")


@contextmanager
def serving(folder):
    """The address of a server of a model folder, which ends with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = "from transformers.cli.transformers import main; main()"
    command = [sys.executable, "-c", code, "serve", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    log = folder.parent / "server.log"
    with log.open("wb") as said:
        child = subprocess.Popen([*command, "--device", "cpu", "--dtype", "float32"], stdout=said, stderr=said)
    try:
        deadline = time.monotonic() + 240
        while not _answers(f"http://127.0.0.1:{port}/health"):
            assert child.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        child.terminate()
        child.wait(30)


def _answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same model in this process and behind the server."""
    folder = tmp_path_factory.mktemp("served") / "tiny"
    hf = tiny_hf("llama")
    # The server takes what a request does not say from here; as they come, models draw from the likeliest 50 tokens.
    hf.generation_config.do_sample = True
    hf.generation_config.top_k = 0
    hf.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    with serving(folder) as url:
        yield InProcess(open_model(str(folder))), Served(url, str(folder), tokens=open_tokenizer(str(folder)))


def _drawn(engine, asked):
    found = {}
    engine.sample(asked, each=found.__setitem__)
    return [found[at] for at in range(len(asked))]


def test_what_it_can_do_is_found_out_and_what_it_lacks_is_named(both):
    _, served = both
    assert PREFIX in served.can
    assert LETTERS not in served.can
    assert any("no log-probabilities" in note for note in served.notes)
    with pytest.raises(LmassayError) as error:
        served.letters([QUESTION], ["AB"])
    assert error.value.code == "server-cannot"


def test_the_likeliest_continuations_are_those_in_process(both):
    own, served = both
    asked = [(QUESTION.begun(prefix), Sampling(0.0, max_tokens=12), 0) for prefix in PREFIXES]
    for here, there in zip(_drawn(own, asked), _drawn(served, asked), strict=True):
        assert (there.text, there.finish) == (here.text, here.finish)


def test_first_tokens_have_the_model_s_distribution_on_both_sides(both):
    """Chi-square of 300 draws each against exact probabilities; refused under .001."""
    own, served = both
    n, heat = 300, 1.5
    ids = torch.tensor([own.renderer.ids(QUESTION)])
    with torch.inference_mode():
        chances = torch.softmax(own.model.hf(ids).logits[0, -1].double() / heat, -1).tolist()
    expected, special = Counter(), set(own.model.tokens.hf.all_special_tokens)
    for token, chance in enumerate(chances):
        text = own.model.tokens.hf.decode([token], skip_special_tokens=True)
        expected[text] += n * chance
    bins, filled = {}, [0.0]
    for text in sorted(expected):
        if filled[-1] >= 20:
            filled.append(0.0)
        bins[text] = len(filled) - 1
        filled[-1] += expected[text]
    assert len(filled) > 6
    asked = [(QUESTION, Sampling(heat, max_tokens=1), seed) for seed in range(n)]
    for drawn in (_drawn(own, asked), _drawn(served, asked)):
        # The server leaves special tokens out of its texts.
        seen = Counter(bins["" if sample.text in special else sample.text] for sample in drawn)
        assert chisquare([seen[at] for at in range(len(filled))], filled).pvalue > 1e-3
