"""A fit lowers the divergence on text it has not seen, and ends the same however often it was stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file

from lmassay.errors import LmassayError
from lmassay.models.engines import score
from lmassay.models.fit_lens import FitSettings, _Fit, fit_lens
from lmassay.models.lens_text import HELD_OUT_MOST, chosen, read_text, sequences
from lmassay.models.open import open_model
from lmassay.models.tree import Continuations
from lmassay.models.tuned_lens import with_lens
from tiny_models import VOCABULARY, tiny_hf, tiny_tokenizer

TEXT = " ".join(f"Start with {a}. Add {b}. The result is {a + b}." for a in range(40) for b in range(9))
SHORT = TEXT[:6000]
SMALL = FitSettings(steps=6, tokens_per_step=64)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A lens of the tiny GPT-2 and its fit."""
    model = open_model(tiny_hf("gpt2"), tokenizer=tiny_tokenizer())
    return fit_lens(model, TEXT, tmp_path_factory.mktemp("lens") / "lens", FitSettings(steps=40, tokens_per_step=128))


def _parameters(path):
    return load_file(path / "params.safetensors")


def _equal(a, b):
    first, second = _parameters(a), _parameters(b)
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.tiny
def test_a_fit_lowers_the_held_out_divergence_at_every_depth(fitted):
    assert list(fitted.held_out) == ["embed", "block.0", "block.1"]
    for figures in fitted.held_out.values():
        assert figures["change"].high < 0
        assert figures["after"].value < 0.75 * figures["before"].value
        assert figures["after"].value - figures["before"].value == pytest.approx(figures["change"].value, abs=1e-9)
        assert (figures["after"].n, figures["after"].status) == (10, "ok")


def _loud(family, bos="none", dtype=None):
    """A model whose blocks add enough to their input for a lens to have something to fit."""
    hf = tiny_hf(family)
    with torch.no_grad():
        for name, parameter in hf.named_parameters():
            if parameter.ndim == 2 and ".layers." in name:
                parameter.mul_(8)
    return open_model(hf, tokenizer=tiny_tokenizer(bos), dtype=dtype)


@pytest.mark.tiny
@pytest.mark.parametrize("family", ["llama", "gemma2", "opt_projected", "phi"])
def test_a_fit_lowers_the_divergence_whatever_stands_behind_the_state(tmp_path, family):
    """RMS norm; soft-cap; a projection; a bias of the head; each with a token before every text."""
    result = fit_lens(_loud(family, bos="adds"), SHORT, tmp_path / "lens", FitSettings(20, 128))
    for figures in result.held_out.values():
        assert figures["before"].value > 1e-3
        assert figures["change"].high < 0


@pytest.mark.tiny
def test_the_held_out_figures_are_those_of_a_plain_loop(tiny_model, tmp_path):
    """float64, one token at a time: softmax of transformers' logits against the translated hidden state."""
    model = tiny_model("gpt2", bos="adds", dtype="float64")
    result = fit_lens(model, SHORT, tmp_path / "lens", SMALL)
    held_out = sequences(model, SHORT, SMALL.tokens_per_step).held_out
    assert (held_out[:, 0] == 1).all()
    state = _parameters(tmp_path / "lens")
    found = np.zeros((2, 3))
    for row in held_out:
        out = model.hf(input_ids=torch.from_numpy(row[None]), output_hidden_states=True)
        for at in range(1, len(row)):
            log_p = torch.log_softmax(out.logits[0, at], -1)
            for depth in range(3):
                h = out.hidden_states[depth][0, at]
                moved = h + state[f"{depth}.weight"] @ h + state[f"{depth}.bias"]
                for i, read in enumerate((h, moved)):
                    log_q = torch.log_softmax(model.hf.lm_head(model.hf.transformer.ln_f(read)), -1)
                    found[i, depth] += float((log_p.exp() * (log_p - log_q)).sum())
    found /= held_out[:, 1:].size
    assert result.n_tokens == held_out[:, 1:].size
    for depth, figures in enumerate(result.held_out.values()):
        assert figures["before"].value == pytest.approx(found[0, depth], abs=1e-9)
        assert figures["after"].value == pytest.approx(found[1, depth], abs=1e-9)


@pytest.mark.tiny
def test_a_step_is_that_of_torch_s_own_optimiser(tiny_model, tmp_path):
    """Three steps by autograd through the whole expression and torch.optim.SGD, each depth clipped to norm one."""
    model = tiny_model("gpt2", dtype="float64")
    cut = sequences(model, TEXT, 64)
    settings = FitSettings(steps=5, tokens_per_step=64, lr=2.0)
    fit = _Fit.started(model, tmp_path, {})
    own = [(torch.zeros(32, 32, dtype=torch.float64), torch.zeros(32, dtype=torch.float64)) for _ in range(3)]
    for pair in own:
        for tensor in pair:
            tensor.requires_grad_()
    optimisers = [torch.optim.SGD(pair, lr=0.2, momentum=0.9, nesterov=True) for pair in own]
    for step in range(3):
        ids = cut.train[step : step + 2]
        fit.advance(ids, cut.n_prefix, settings)
        out = model.hf(input_ids=torch.from_numpy(ids), output_hidden_states=True)
        log_p = torch.log_softmax(out.logits, -1)
        for depth, ((weight, bias), optimiser) in enumerate(zip(own, optimisers, strict=True)):
            h = out.hidden_states[depth]
            read = h + h @ weight.T + bias
            log_q = torch.log_softmax(model.hf.lm_head(model.hf.transformer.ln_f(read)), -1)
            optimiser.zero_grad()
            (log_p.exp() * (log_p - log_q)).sum(-1).mean().backward()
            torch.nn.utils.clip_grad_norm_((weight, bias), 1.0)
            optimiser.param_groups[0]["lr"] = 0.2 * (1 - step / 5)
            optimiser.step()
    for depth, (weight, bias) in enumerate(own):
        torch.testing.assert_close(fit.weight[depth], weight.detach(), rtol=0, atol=1e-6)
        torch.testing.assert_close(fit.bias[depth], bias.detach(), rtol=0, atol=1e-6)
        assert float(weight.detach().abs().max()) > 1e-3


@pytest.mark.tiny
def test_what_is_fitted_is_what_scoring_reads(fitted):
    """The divergence taken from scores of every next token falls at each depth that has a translator."""
    model = open_model(tiny_hf("gpt2"), tokenizer=tiny_tokenizer())
    every = tuple((token,) for token in range(VOCABULARY))
    rows = sequences(model, TEXT, 128).held_out[:3]
    requests = [Continuations(tuple(row.tolist()), every) for row in rows]

    def divergence(read):
        scored = np.stack([np.concatenate(targets) for targets in score(read, requests)])
        final = scored[:, :, -1:]
        return (np.exp(final) * (final - scored)).sum(1).mean(0)

    before, after = divergence(model), divergence(with_lens(model, str(fitted.path)))
    assert (after[:3] < before[:3]).all()
    assert (before[3:] == after[3:]).all()


class _Stop(Exception):  # noqa: N818 - a signal
    pass


@pytest.mark.tiny
@pytest.mark.parametrize("at", [1, 3, 6, 8])
def test_stopped_at_any_step_and_run_again_equals_uninterrupted(tiny_model, tmp_path, at):
    """Steps 1 to 6 fit, later units are held-out sequences."""
    model = tiny_model("gpt2")

    def stop(done, _):
        if done == at:
            raise _Stop

    whole = fit_lens(model, TEXT, tmp_path / "whole", SMALL)
    with pytest.raises(_Stop):
        fit_lens(model, TEXT, tmp_path / "cut", SMALL, progress=stop, checkpoint_seconds=0)
    assert not (tmp_path / "cut" / "config.json").exists()
    again = fit_lens(model, TEXT, tmp_path / "cut", SMALL)
    assert again.resumed_step == min(at, SMALL.steps)
    assert _equal(tmp_path / "whole", tmp_path / "cut")
    assert again.held_out == whole.held_out
    assert (tmp_path / "cut" / "config.json").read_bytes() == (tmp_path / "whole" / "config.json").read_bytes()
    assert sorted(p.name for p in (tmp_path / "cut").glob("[!.]*")) == ["config.json", "params.safetensors"]


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import torch
torch.set_num_threads(1)
from test_fit_lens import SMALL, TEXT, fit_lens, open_model, tiny_hf, tiny_tokenizer
def die(done, total):
    if done == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
model = open_model(tiny_hf("gpt2"), tokenizer=tiny_tokenizer())
fit_lens(model, TEXT, Path(sys.argv[1]), SMALL, progress=die, checkpoint_seconds=0)
"""


@pytest.mark.tiny
def test_killed_and_run_again_equals_uninterrupted(tmp_path):
    """One process killed without warning, one that goes on, one that was never stopped."""
    here = Path(__file__).parent
    env = os.environ | {"PYTHONPATH": str(here.parent), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(name, at):
        command = [sys.executable, "-c", KILLED, str(tmp_path / name), str(here), str(at)]
        return subprocess.run(command, env=env, capture_output=True).returncode

    assert run("cut", 4) == -signal.SIGKILL
    assert (tmp_path / "cut" / "fit.safetensors").exists()
    assert run("cut", -1) == 0
    assert run("whole", -1) == 0
    assert _equal(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.tiny
def test_a_finished_fit_is_read_and_another_is_not_written_over(tiny_model, tmp_path):
    model, out = tiny_model("gpt2"), tmp_path / "lens"
    first = fit_lens(model, TEXT, out, SMALL)
    again = fit_lens(model, TEXT, out, SMALL, progress=lambda *_: pytest.fail("fitted again"))
    assert (again.sha256, again.held_out, again.n_tokens) == (first.sha256, first.held_out, first.n_tokens)
    other = FitSettings(steps=6, tokens_per_step=64, seed=1)
    with pytest.raises(LmassayError, match="run-folder-mismatch"):
        fit_lens(model, TEXT, out, other)
    with pytest.raises(LmassayError, match="run-folder-mismatch"):
        fit_lens(model, TEXT + " And more.", out, SMALL)
    replaced = fit_lens(model, TEXT, out, other, replace_other=True)
    assert replaced.sha256 != first.sha256
    assert with_lens(model, str(out)).lens.sha256 == replaced.sha256


@pytest.mark.tiny
def test_a_checkpoint_of_another_fit_or_a_damaged_one_is_begun_again(tiny_model, tmp_path):
    model = tiny_model("gpt2")

    def stop(done, _):
        if done == 3:
            raise _Stop

    for name, seed, damage in (("other", 1, False), ("damaged", 0, True)):
        with pytest.raises(_Stop):
            fit_lens(model, TEXT, tmp_path / name, FitSettings(6, 64, seed=seed), progress=stop, checkpoint_seconds=0)
        if damage:
            path = tmp_path / name / "fit.safetensors"
            path.write_bytes(path.read_bytes()[:-100])
        assert fit_lens(model, TEXT, tmp_path / name, SMALL).resumed_step == 0
    fit_lens(model, TEXT, tmp_path / "whole", SMALL)
    assert _equal(tmp_path / "whole", tmp_path / "other")
    assert _equal(tmp_path / "whole", tmp_path / "damaged")


@pytest.mark.tiny
def test_a_short_text_is_refused_in_one_line(tiny_model, tmp_path):
    with pytest.raises(LmassayError) as stop:
        fit_lens(tiny_model("gpt2"), "Too short.", tmp_path / "lens", FitSettings())
    assert stop.value.code == "bad-request"
    assert "tokens" in stop.value.what
    assert "longer text" in stop.value.do


@pytest.mark.tiny
@pytest.mark.parametrize("tokens_per_step", [16, 64, 100, 1000])
@pytest.mark.parametrize("bos", ["none", "adds"])
def test_a_text_is_cut_once_with_its_end_held_out(tiny_model, tokens_per_step, bos):
    model = tiny_model("gpt2", bos=bos)
    cut = sequences(model, TEXT, tokens_per_step)
    ids = model.tokens.encode(TEXT)
    assert cut.train.shape[1] <= 128
    assert cut.n_prefix == (bos == "adds")
    joined = np.concatenate([cut.train[:, cut.n_prefix :].ravel(), cut.held_out[:, cut.n_prefix :].ravel()]).tolist()
    assert joined == ids[: len(joined)]
    assert len(ids) - len(joined) < cut.n_tokens
    assert 3 <= len(cut.held_out) <= HELD_OUT_MOST


def test_an_epoch_takes_every_sequence_once_and_the_next_in_another_order():
    epochs = [np.concatenate([chosen(12, 3, step, seed=0) for step in range(4 * e, 4 * e + 4)]) for e in range(2)]
    assert [sorted(e.tolist()) for e in epochs] == [list(range(12))] * 2
    assert epochs[0].tolist() != epochs[1].tolist()
    assert chosen(12, 3, 0, seed=0).tolist() != chosen(12, 3, 0, seed=1).tolist()


@pytest.mark.tiny
def test_a_second_fit_in_one_folder_and_a_folder_of_something_else_are_refused(tiny_model, tmp_path):
    (tmp_path / "lens").mkdir()
    with FileLock(tmp_path / "lens" / ".lock"), pytest.raises(LmassayError, match="run-folder-in-use"):
        fit_lens(tiny_model("gpt2"), TEXT, tmp_path / "lens", SMALL)
    (tmp_path / "lens" / "thesis.tex").write_text("mine")
    with pytest.raises(LmassayError, match=r"bad-request.*thesis\.tex"):
        fit_lens(tiny_model("gpt2"), TEXT, tmp_path / "lens", SMALL)
    assert (tmp_path / "lens" / "thesis.tex").read_text() == "mine"


@pytest.mark.tiny
def test_a_rate_so_high_that_numbers_overflow_is_an_error_and_leaves_no_lens(tiny_model, tmp_path):
    with pytest.raises(LmassayError, match=r"non-finite-logits.*embed has no finite gradient \(step 1\).*lower --lr"):
        fit_lens(tiny_model("gpt2"), TEXT, tmp_path / "lens", FitSettings(6, 64, lr=1e35))
    assert not (tmp_path / "lens" / "config.json").exists()


@pytest.mark.tiny
def test_a_half_precision_body_is_fitted_in_float32(tmp_path):
    result = fit_lens(_loud("llama", dtype="bfloat16"), SHORT, tmp_path / "lens", FitSettings(20, 128))
    assert {t.dtype for t in _parameters(tmp_path / "lens").values()} == {torch.float32}
    assert all(f["change"].high < 0 for f in result.held_out.values())


@pytest.mark.parametrize("bad", [{"steps": 0}, {"tokens_per_step": 0}, {"lr": 0.0}, {"lr": float("nan")}])
def test_settings_that_fit_nothing_are_refused(bad):
    with pytest.raises(LmassayError, match="bad-request"):
        FitSettings(**bad)


def test_a_text_that_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    for name, said in (("latin.txt", "no UTF-8 text"), ("absent.txt", "cannot read")):
        with pytest.raises(LmassayError, match=f"bad-request.*{said}"):
            read_text(tmp_path / name)


@pytest.mark.tiny
def test_the_config_is_that_of_the_package_with_figures_beside(fitted):
    config = json.loads((fitted.path / "config.json").read_text())
    assert (config["d_model"], config["num_hidden_layers"], config["bias"]) == (32, 3, True)
    assert config["lens_type"] == "linear_tuned_lens"
    assert len(config["unembed_hash"]) == 64
    assert config["lmassay"]["held_out"]["depths"]["embed"]["after"]["low"] is not None
    assert {k: tuple(v.shape) for k, v in _parameters(fitted.path).items()} == {
        f"{i}.{kind}": shape for i in range(3) for kind, shape in (("weight", (32, 32)), ("bias", (32,)))
    }


@pytest.mark.real
@pytest.mark.slow
def test_a_small_fit_of_a_real_model_comes_nearer_to_its_output(smollm, tmp_path):
    """Python's own language reference as text: six steps of 32 tokens take a good part of the way."""
    from pydoc_data.topics import topics

    result = fit_lens(smollm, "\n".join(topics.values())[:1200], tmp_path / "lens", FitSettings(6, 32))
    for depth, figures in result.held_out.items():
        assert figures["after"].value < figures["before"].value, depth
    before, after = (np.mean([f[name].value for f in result.held_out.values()]) for name in ("before", "after"))
    assert after < 0.7 * before
    assert "hash of the weights" in with_lens(smollm, str(tmp_path / "lens")).notes[-1]
