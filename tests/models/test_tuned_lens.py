"""A tuned lens is a translator per depth before the final norm, and belongs to one model."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lmassay.errors import LmassayError
from lmassay.models.engines import score
from lmassay.models.lens import target_log_probs
from lmassay.models.open import open_model
from lmassay.models.trace import Batch, trace
from lmassay.models.tree import Continuations
from lmassay.models.tuned_lens import parameters_digest, unembedding_hash, with_lens
from tiny_models import VOCABULARY, tiny_hf, tiny_tokenizer

pytestmark = pytest.mark.tiny
ENGINES = ("packed", "cached", "plain")


def _translators(n=3, d=32, scale=0.2, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for i in range(n):
        state[f"{i}.weight"] = scale * torch.randn(d, d, generator=generator).to(dtype)
        state[f"{i}.bias"] = scale * torch.randn(d, generator=generator).to(dtype)
    return state


def _folder(path, state, **changes):
    """The layout of the tuned-lens package: a config beside a pickled state dict."""
    path.mkdir(exist_ok=True)
    config = {
        "base_model_name_or_path": "somewhere/GPT2LMHeadModel",
        "d_model": 32,
        "num_hidden_layers": 3,
        "bias": True,
        "base_model_revision": None,
        "unembed_hash": None,
        "lens_type": "linear_tuned_lens",
    }
    (path / "config.json").write_text(json.dumps(config | changes))
    torch.save(state, path / "params.pt")
    return path


def _named(model):
    return replace(model, name="GPT2LMHeadModel")


def _requests(seed=0, n=4):
    rng = np.random.default_rng(seed)

    def some(size):
        return tuple(int(t) for t in rng.integers(3, VOCABULARY, size))

    return [
        Continuations(some(rng.integers(1, 12)), tuple(some(rng.integers(1, 4)) for _ in range(4))) for _ in range(n)
    ]


def _gap(a, b):
    return max(np.abs(x - y).max() for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True))


def _layer_norm(row, norm):
    weight, bias = norm.weight.double().numpy(), norm.bias.double().numpy()
    centred = row - row.mean()
    return centred / np.sqrt((centred**2).mean() + norm.eps) * weight + bias


def _own_norm(row, norm):
    """Llama's computes in float32 whatever it is given, so by hand it could only be had to 1e-8."""
    return norm(torch.from_numpy(row)).numpy()


def _by_hand(model, norm, state, request, target):
    """(n_tokens, n_depths) float64: hidden states of transformers, one token and one depth at a time, in numpy."""
    ids = torch.tensor([[*request.context, *target[:-1]]])
    out = model.hf(input_ids=ids, output_hidden_states=True)
    head = model.anatomy.head
    bias = 0.0 if head.bias is None else head.bias.numpy()
    values = np.empty((len(target), model.n_blocks + 2))
    for t, token in enumerate(target):
        at = len(request.context) - 1 + t
        for depth in range(model.n_blocks):
            row = out.hidden_states[depth][0, at].numpy()
            weight, shift = state[f"{depth}.weight"].double().numpy(), state[f"{depth}.bias"].double().numpy()
            logits = head.weight.numpy() @ norm(row + weight @ row + shift, model.anatomy.norm) + bias
            values[t, depth] = logits[token] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        values[t, -2:] = float(torch.log_softmax(out.logits[0, at], -1)[token])
    return values


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("family", "norm"), [("gpt2", _layer_norm), ("llama", _own_norm)])
def test_every_depth_equals_translators_applied_by_hand(tiny_model, tmp_path, family, norm, engine):
    model = tiny_model(family, dtype="float64")
    state = _translators()
    lens = with_lens(model, str(_folder(tmp_path / "lens", state, base_model_name_or_path=model.name)))
    requests = _requests()
    for request, scored in zip(requests, score(lens, requests, engine=engine), strict=True):
        for target, values in zip(request.targets, scored, strict=True):
            np.testing.assert_allclose(values, _by_hand(model, norm, state, request, target), rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", ["gemma2", "opt_projected", "mpt", "phi"])
def test_engines_agree_under_a_tuned_lens(tiny_model, tmp_path, family):
    """Soft-cap, projection, a model that is not packed, a bias of the head."""
    model = tiny_model(family)
    lens = with_lens(model, str(_folder(tmp_path / "lens", _translators(), base_model_name_or_path=model.name)))
    plain = score(lens, _requests(), engine="plain")
    for engine in ("packed", "cached"):
        assert _gap(plain, score(lens, _requests(), engine=engine)) < 1e-4
    assert _gap(plain, score(model, _requests(), engine="plain")) > 0.1


@pytest.mark.parametrize("engine", ENGINES)
def test_zero_translators_are_the_logit_lens_bit_for_bit(tiny_model, tmp_path, engine):
    model = tiny_model("gpt2")
    state = {k: torch.zeros_like(v) for k, v in _translators().items()}
    lens = with_lens(model, str(_folder(tmp_path / "lens", state, base_model_name_or_path=model.name)))
    assert _gap(score(model, _requests(), engine=engine), score(lens, _requests(), engine=engine)) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_the_last_block_and_final_are_the_model_s_own_under_any_lens(tiny_model, tmp_path, engine):
    model = tiny_model("llama")
    lens = with_lens(model, str(_folder(tmp_path / "lens", _translators(), base_model_name_or_path=model.name)))
    for a, b in zip(score(model, _requests(), engine=engine), score(lens, _requests(), engine=engine), strict=True):
        for x, y in zip(a, b, strict=True):
            assert (x[:, -2:] == y[:, -2:]).all()
            assert (np.abs(x[:, :-2] - y[:, :-2]) > 1e-3).any()


def test_a_half_precision_body_is_translated_in_float32(tiny_model, tmp_path):
    model = tiny_model("llama", dtype="bfloat16")
    state = _translators()
    lens = with_lens(model, str(_folder(tmp_path / "lens", state, base_model_name_or_path=model.name)))
    ids = torch.tensor([[5, 6, 7, 8]])
    cols = torch.arange(4)
    seen = trace(model, Batch(ids, torch.ones_like(ids), cols[None]), torch.zeros_like(cols), cols, range(4))
    found = target_log_probs(lens, seen.states, cols, torch.tensor([9, 10, 11, 12]))
    norm, head = model.anatomy.norm, model.anatomy.head.weight.double()
    for depth in range(3):
        rows = seen.states[depth].double()
        rows = rows + rows @ state[f"{depth}.weight"].double().T + state[f"{depth}.bias"].double()
        rows = rows / (rows.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt() * norm.weight.double()
        own = torch.log_softmax(rows @ head.T, -1)[cols, torch.tensor([9, 10, 11, 12])]
        torch.testing.assert_close(found[depth], own, rtol=0, atol=1e-4)


def test_states_of_some_depths_are_translated_as_what_they_are(tiny_model, tmp_path):
    model = tiny_model("gpt2")
    lens = with_lens(model, str(_folder(tmp_path / "lens", _translators(), base_model_name_or_path=model.name)))
    ids = torch.tensor([[5, 6, 7]])
    cols = torch.arange(3)
    batch, rows, target = Batch(ids, torch.ones_like(ids), cols[None]), torch.zeros_like(cols), torch.tensor([8, 9, 10])
    states = trace(model, batch, rows, cols, range(4)).states
    whole = target_log_probs(lens, states, cols, target)
    some = target_log_probs(lens, states[[2, 0, 3]], cols, target, depths=(2, 0, 3))
    torch.testing.assert_close(some, whole[[2, 0, 3]], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="needs `depths`"):
        target_log_probs(lens, states[:2], cols, target)


def test_a_lens_without_biases_has_zero_ones(tiny_model, tmp_path):
    model = _named(tiny_model("gpt2"))
    state = {k: v for k, v in _translators().items() if k.endswith("weight")}
    lens = with_lens(model, str(_folder(tmp_path / "lens", state, bias=False)))
    full = state | {f"{i}.bias": torch.zeros(32) for i in range(3)}
    assert lens.lens.sha256 == with_lens(model, str(_folder(tmp_path / "full", full))).lens.sha256


def test_the_convention_tells_lenses_apart(tiny_model, tmp_path):
    model = _named(tiny_model("gpt2"))
    lenses = [with_lens(model, str(_folder(tmp_path / str(s), _translators(seed=s)))) for s in (0, 1)]
    found = [m.convention()["lens"] for m in (model, *lenses)]
    assert found[0] == "logit"
    assert [set(f) for f in found[1:]] == [{"tuned"}, {"tuned"}]
    assert found[1] != found[2]
    assert with_lens(lenses[0], "logit").convention() == model.convention()


def test_the_lens_is_named_among_the_notes(tiny_model, tmp_path):
    lens = with_lens(_named(tiny_model("gpt2")), str(_folder(tmp_path / "lens", _translators())))
    assert lens.lens.sha256[:12] in lens.notes[-1]
    assert "shape and name only" in lens.notes[-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_package_s_unembedding_hash_is_recognised(tiny_model, tmp_path, dtype):
    model = tiny_model("gpt2")
    stored = unembedding_hash(model.anatomy.head.weight.to(dtype))
    folder = _folder(tmp_path / "lens", _translators(), base_model_name_or_path="anything", unembed_hash=stored)
    assert "unembedding" in with_lens(model, str(folder)).notes[-1]


def test_the_unembedding_hash_follows_the_package_s_rule_whatever_the_print_options():
    """sha256 of numpy.array_str at one decimal, here written out for a matrix small enough to be printed whole."""
    import hashlib

    head = torch.tensor([[0.123, -1.5], [2.0, 0.26]])
    expected = hashlib.sha256(b"[[ 0.1 -1.5]\n [ 2.   0.3]]").hexdigest()
    with np.printoptions(precision=7, suppress=True, linewidth=5):
        assert unembedding_hash(head) == expected


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": 4}, "for 4 blocks of width 32; GPT2LMHeadModel has 3 of 32"),
        ({"d_model": 16}, "for 3 blocks of width 16"),
        ({"unembed_hash": "0" * 64}, "unembedding 000000000000"),
        ({"base_model_name_or_path": "owner/other"}, "another name, and no hash"),
    ],
)
def test_a_lens_of_another_model_is_refused(tiny_model, tmp_path, changes, said):
    folder = _folder(tmp_path / "lens", _translators(), **changes)
    with pytest.raises(LmassayError) as stop:
        with_lens(_named(tiny_model("gpt2")), str(folder))
    assert stop.value.code == "lens-mismatch"
    assert said in stop.value.what
    assert "fit-lens GPT2LMHeadModel" in stop.value.do


def _ours(path, model, state):
    n = len(state) // 2
    sha256 = parameters_digest(
        torch.stack([state[f"{i}.weight"] for i in range(n)]), torch.stack([state[f"{i}.bias"] for i in range(n)])
    )
    origin = {"weights_sha256": model.fingerprint.weights, "dtype": "float32", "params_sha256": sha256}
    _folder(path, state, lmassay=origin)
    (path / "params.pt").unlink()
    save_file(state, path / "params.safetensors")
    return path


def test_our_own_lens_is_matched_by_the_hash_of_all_weights(tiny_model, tmp_path):
    model = tiny_model("gpt2")
    folder = _ours(tmp_path / "lens", model, _translators())
    assert "hash of the weights" in with_lens(model, str(folder)).notes[-1]
    other = open_model(tiny_hf("gpt2", seed=5), tokenizer=tiny_tokenizer())
    with pytest.raises(LmassayError, match=r"lens-mismatch.*weights"):
        with_lens(other, str(folder))
    half = tiny_model("gpt2", dtype="bfloat16")
    with pytest.raises(LmassayError, match="fitted in float32, opened in bfloat16"):
        with_lens(half, str(folder))


def test_altered_parameters_are_refused(tiny_model, tmp_path):
    model = tiny_model("gpt2")
    folder = _ours(tmp_path / "lens", model, _translators())
    save_file(_translators(seed=1), folder / "params.safetensors")
    with pytest.raises(LmassayError, match=r"model-files-broken.*not those its config"):
        with_lens(model, str(folder))


class _Bomb:
    def __reduce__(self):
        return (open, ("bomb-went-off", "w"))


def test_a_pickle_that_would_run_code_runs_none(tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = _folder(tmp_path / "lens", {"0.weight": _Bomb()})
    with pytest.raises(LmassayError) as stop:
        with_lens(_named(tiny_model("gpt2")), str(folder))
    assert stop.value.code == "model-files-broken"
    assert not (tmp_path / "bomb-went-off").exists()


def _cut(folder):
    (folder / "params.pt").write_bytes((folder / "params.pt").read_bytes()[:500])


def _empty(folder):
    (folder / "params.pt").write_bytes(b"")


def _gone(folder):
    (folder / "params.pt").unlink()


def _no_config(folder):
    (folder / "config.json").unlink()


def _no_json(folder):
    (folder / "config.json").write_text("{")


def _not_finite(folder):
    state = _translators()
    state["1.bias"][3] = float("nan")
    torch.save(state, folder / "params.pt")


def _one_missing(folder):
    state = _translators()
    del state["2.bias"]
    torch.save(state, folder / "params.pt")


def _other_shape(folder):
    torch.save(_translators(d=16), folder / "params.pt")


def _other_keys(folder):
    torch.save({"layer_translators.0.weight": torch.zeros(32, 32)}, folder / "params.pt")


def _a_list(folder):
    torch.save([torch.zeros(32, 32)], folder / "params.pt")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_cut, "params.pt"), (_empty, "params.pt"), (_gone, "params.pt"), (_no_config, "config.json"),
        (_no_json, "config.json"), (_not_finite, "NaN"), (_one_missing, "2.bias should be (32,), is absent"),
        (_other_shape, "should be"), (_other_keys, "named"), (_a_list, "named"),
    ],
)  # fmt: skip
def test_a_broken_lens_is_one_line(tiny_model, tmp_path, damage, said):
    folder = _folder(tmp_path / "lens", _translators())
    damage(folder)
    with pytest.raises(LmassayError) as stop:
        with_lens(_named(tiny_model("gpt2")), str(folder))
    assert stop.value.code == "model-files-broken"
    assert said in stop.value.what
    assert "\n" not in stop.value.one_line()


def test_a_lens_of_another_type_is_refused(tiny_model, tmp_path):
    folder = _folder(tmp_path / "lens", _translators(), lens_type="mlp_tuned_lens")
    with pytest.raises(LmassayError, match=r"bad-request.*mlp_tuned_lens"):
        with_lens(_named(tiny_model("gpt2")), str(folder))


def test_an_unknown_lens_is_refused_with_what_there_is(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("LMASSAY_CACHE", str(tmp_path))
    with pytest.raises(LmassayError, match=r"bad-request.*--lens is logit, tuned or a folder"):
        with_lens(tiny_model("gpt2"), "tune")
    with pytest.raises(LmassayError, match=r"bad-request.*lmassay models fit-lens"):
        with_lens(tiny_model("gpt2"), "tuned")
