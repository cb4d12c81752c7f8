"""A file gives the features its own library would give, and what cannot be read is refused by name."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from lmassay.errors import LmassayError
from lmassay.models.saes import autoencoder
from lmassay.models.saes.formats import FORMATS, open_sae
from made_saes import CASES, FEATURES, WIDTH, dictionary_learning, gemma_scope, sae_lens, sparsify, tokens


@pytest.fixture(params=list(CASES))
def made(request, tmp_path):
    return CASES[request.param](tmp_path / "sae")


def _rows(function, *arrays):
    return np.stack([function(*row) for row in zip(*(np.asarray(a, np.float64) for a in arrays), strict=True)])


def test_features_are_those_of_a_plain_encoder(made):
    sae, x = open_sae(made.folder, allow_pickle=True), tokens()
    wanted = _rows(made.encode, x)
    found = sae.encode(x).numpy()
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    assert ((found > 0) == (wanted > 0)).all()
    # The layouts are told apart by more than their names: some features are on and some are off.
    assert 0 < (wanted > 0).mean() < 1


def test_decoding_is_that_of_a_plain_decoder(made):
    sae, x = open_sae(made.folder, allow_pickle=True), tokens()
    found = sae.decode(sae.encode(x), x).numpy()
    np.testing.assert_allclose(found, _rows(made.decode, _rows(made.encode, x), x), atol=1e-4)


def test_every_layout_states_its_block(made):
    assert open_sae(made.folder, allow_pickle=True).stated.block == 1


def test_pieces_of_any_size_give_the_same_features(made, monkeypatch):
    sae, x = open_sae(made.folder, allow_pickle=True), tokens(11)
    whole = sae.encode(x)
    for rows in (1, 3, 11, 50):
        monkeypatch.setattr(autoencoder, "CHUNK", rows * sae.n_features)
        parts = list(sae.encoded(x))
        assert max(len(features) for _, features in parts) <= rows
        assert [p for part, _ in parts for p in range(part.start, part.stop)] == list(range(11))
        assert torch.allclose(torch.cat([features for _, features in parts]), whole, atol=1e-6)


def test_no_token_has_a_part_in_another_s_features(made):
    sae, x = open_sae(made.folder, allow_pickle=True), tokens()
    order = np.random.default_rng(3).permutation(len(x))
    assert torch.allclose(sae.encode(x[order]), sae.encode(x)[torch.from_numpy(order)], atol=1e-6)


def test_one_format_knows_each_folder(made):
    assert [f.recognises(made.folder) for f in FORMATS].count(True) == 1


def test_a_file_of_the_folder_names_it_as_well(tmp_path):
    made = sae_lens(tmp_path / "sae")
    assert open_sae(made.folder / "cfg.json").sha256 == open_sae(made.folder).sha256


def test_the_digest_follows_what_decides_a_number_and_nothing_else(tmp_path):
    one = open_sae(sae_lens(tmp_path / "a").folder)
    named = open_sae(sae_lens(tmp_path / "b", metadata={"hook_name": "blocks.0.hook_resid_post"}).folder)
    assert named.stated.block == 0
    assert named.sha256 == one.sha256
    others = [
        sae_lens(tmp_path / "c", subtracts=False),
        sae_lens(tmp_path / "d", normalisation="layer_norm"),
        sae_lens(tmp_path / "e", "topk"),
        sae_lens(tmp_path / "f", "topk", k=5),
        sae_lens(tmp_path / "g", "jumprelu"),
    ]
    assert len({one.sha256, *(open_sae(o.folder).sha256 for o in others)}) == 6


def test_what_a_file_states_is_kept(tmp_path):
    stated = open_sae(sae_lens(tmp_path / "a").folder).stated
    assert (stated.model, stated.hook, stated.bos) == ("reader", "blocks.1.hook_resid_post", False)
    # Before version 6 a file without the field meant that texts begin with BOS.
    folder = sae_lens(tmp_path / "b", version=5).folder
    config = json.loads((folder / "cfg.json").read_text())
    del config["prepend_bos"]
    (folder / "cfg.json").write_text(json.dumps(config))
    assert open_sae(folder).stated.bos is True
    assert open_sae(gemma_scope(tmp_path / "c").folder).stated.bos is True
    assert open_sae(sparsify(tmp_path / "d").folder).stated.bos is None


def test_a_scale_that_is_not_in_the_file_is_said(tmp_path):
    (note,) = open_sae(sae_lens(tmp_path / "a", normalisation="expected_average_only_in").folder).stated.notes
    assert "factor" in note


@pytest.mark.parametrize(
    ("hook", "block"),
    [
        ("blocks.3.hook_resid_post", 3),
        ("blocks.3.hook_resid_pre", 2),
        ("blocks.3.hook_out", 3),
        ("model.layers.3", 3),
        ("transformer.h.3", 3),
        ("layers.3", 3),
    ],
)
def test_a_hook_is_the_output_of_a_block(tmp_path, hook, block):
    assert open_sae(sae_lens(tmp_path / "a", metadata={"hook_name": hook}).folder).stated.block == block


REFUSED = {
    "an MLP's hook": (lambda f: sae_lens(f, metadata={"hook_name": "blocks.1.hook_mlp_out"}), "hook_mlp_out"),
    "the embedding": (lambda f: sae_lens(f, metadata={"hook_name": "blocks.0.hook_resid_pre"}), "hook_resid_pre"),
    "heads": (lambda f: sae_lens(f, reshape_activations="hook_z"), "heads"),
    "a head": (lambda f: sae_lens(f, version=5, hook_head_index=2), "heads"),
    "a transcoder": (lambda f: sae_lens(f, "transcoder"), "'transcoder'"),
    "another function": (lambda f: sae_lens(f, version=5, activation_fn_str="tanh-relu"), "tanh-relu"),
    "another normalisation": (lambda f: sae_lens(f, normalisation="z-score"), "z-score"),
    "a sparsify transcoder": (lambda f: sparsify(f, transcode=True), "transcoder"),
    "a skip connection": (lambda f: sparsify(f, W_skip=np.eye(WIDTH)), "skip connection"),
    "signed features": (lambda f: sparsify(f, signed=True), "negative"),
    "another activation": (lambda f: sparsify(f, "sigmoid"), "sigmoid"),
    "no threshold yet": (lambda f: dictionary_learning(f, threshold=-1.0), "no threshold"),
    "another class": (lambda f: dictionary_learning(f, "CrossCoder"), "CrossCoder"),
    "another place": (lambda f: dictionary_learning(f, place="mlp_out_layer_1"), "mlp_out_layer_1"),
    "Gemma Scope of attention": (lambda f: gemma_scope(f / "gemma-scope-2b-pt-att"), "-att"),
    "a Gemma Scope 2 transcoder": (lambda f: gemma_scope(f, second=True, type="transcoder"), "transcoder"),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_reads_another_place_or_works_otherwise_is_refused(what, tmp_path):
    make, named = REFUSED[what]
    with pytest.raises(LmassayError, match=named) as caught:
        open_sae(make(tmp_path / "sae").folder, allow_pickle=True)
    assert caught.value.code == "bad-request"


def _rewritten(folder, change):
    path = folder / "sae_weights.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


BROKEN = {
    "a missing tensor": (lambda t: t.pop("b_dec"), "b_dec"),
    "another shape": (lambda t: t.update(b_enc=torch.zeros(FEATURES + 1)), r"b_enc should be \(20,\), is \(21,\)"),
    "NaN": (lambda t: t["W_dec"].mul_(torch.nan), "W_dec holds NaN"),
    "a transposed decoder": (lambda t: t.update(W_dec=t["W_dec"].T.contiguous()), "W_dec should be"),
}


@pytest.mark.parametrize("what", list(BROKEN))
def test_a_broken_file_is_named_with_what_is_wrong(what, tmp_path):
    change, named = BROKEN[what]
    folder = sae_lens(tmp_path / "sae").folder
    _rewritten(folder, change)
    with pytest.raises(LmassayError, match=named) as caught:
        open_sae(folder)
    assert caught.value.code == "model-files-broken"


def test_a_tensor_nobody_knows_is_not_left_out_silently(tmp_path):
    folder = sae_lens(tmp_path / "sae").folder
    _rewritten(folder, lambda t: t.update(W_skip=torch.eye(WIDTH)))
    with pytest.raises(LmassayError, match="W_skip"):
        open_sae(folder)


def test_a_factor_of_ones_is_no_factor(tmp_path):
    folder = sae_lens(tmp_path / "sae").folder
    before = open_sae(folder).sha256
    _rewritten(folder, lambda t: t.update(scaling_factor=torch.ones(FEATURES)))
    assert open_sae(folder).sha256 == before
    _rewritten(folder, lambda t: t.update(scaling_factor=torch.full((FEATURES,), 2.0)))
    with pytest.raises(LmassayError, match="scaling factor"):
        open_sae(folder)


@pytest.mark.parametrize("file", ["cfg.json", "sae_weights.safetensors"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
def test_files_cut_short_are_refused(file, content, tmp_path):
    folder = sae_lens(tmp_path / "sae").folder
    (folder / file).write_bytes(content)
    with pytest.raises(LmassayError) as caught:
        open_sae(folder)
    assert caught.value.code == "model-files-broken"
    assert file in str(caught.value)


def test_a_config_of_another_size_is_refused(tmp_path):
    with pytest.raises(LmassayError, match="d_sae is 21"):
        open_sae(sae_lens(tmp_path / "a", d_sae=21).folder)
    with pytest.raises(LmassayError, match="num_latents is 21"):
        open_sae(sparsify(tmp_path / "b", num_latents=21).folder)
    with pytest.raises(LmassayError, match="dict_size is 21"):
        open_sae(dictionary_learning(tmp_path / "c", dict_size=21).folder, allow_pickle=True)


def test_a_folder_without_an_autoencoder_says_what_was_looked_for(tmp_path):
    with pytest.raises(LmassayError, match=r"sae_weights\.safetensors"):
        open_sae(tmp_path)
    with pytest.raises(LmassayError, match="no folder"):
        open_sae(tmp_path / "nowhere")


def test_a_pickle_is_read_only_when_allowed_and_then_runs_nothing(tmp_path):
    folder = dictionary_learning(tmp_path / "sae").folder
    with pytest.raises(LmassayError, match=r"ae\.pt") as caught:
        open_sae(folder)
    assert caught.value.code == "unsafe-weights"

    class Evil:
        def __reduce__(self):
            return (tmp_path.joinpath("ran").touch, ())

    (folder / "ae.pt").write_bytes(pickle.dumps({"encoder.weight": Evil()}))
    with pytest.raises(LmassayError) as caught:
        open_sae(folder, allow_pickle=True)
    assert caught.value.code == "model-files-broken"
    assert not (tmp_path / "ran").exists()
