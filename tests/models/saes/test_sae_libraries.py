"""Our readers against the libraries themselves, and an autoencoder trained by one of them.

Not part of the usual tiers: they need the extra `sae`, and skip without it; tests/README.md says how to run them.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lmassay.errors import LmassayError
from lmassay.models.saes.formats import open_sae
from lmassay.models.saes.train import ABOUT, SaeSettings, train_sae
from made_saes import CASES, tokens

pytestmark = pytest.mark.sae

#: Checkpoints of its trainers are in layouts that its own reader of finished ones does not take.
OF_SAE_LENS = [n for n in CASES if n.startswith("sae_lens") and not any(w in n for w in ("checkpoint", "log", "5"))]
TEXT = " ".join(f"Start with {a}. Add {b}. The result is {a + b}." for a in range(40) for b in range(9))
SMALL = SaeSettings(features=64, k=4, tokens=2000, passes=10, batch=64, lr=3e-3)


@pytest.fixture(scope="module")
def sae_lens():
    return pytest.importorskip("sae_lens", reason="pip install 'lmassay[sae]'")


def _states():
    return tokens(40, seed=3)


@pytest.mark.parametrize("name", OF_SAE_LENS)
def test_features_are_those_of_sae_lens(name, tmp_path, sae_lens):
    folder = CASES[name](tmp_path / "sae").folder
    theirs, ours, x = sae_lens.SAE.load_from_disk(folder), open_sae(folder), _states()
    with torch.no_grad():
        features = theirs.encode(torch.from_numpy(x))
        back = theirs.decode(features)
    if "topk rescaled" in name:
        # Ours are those of a decoder of length 1, which is what sae-lens saves when it has trained one.
        np.testing.assert_allclose(ours.w_dec.norm(dim=1).numpy(), 1, atol=1e-6)
    np.testing.assert_allclose(ours.encode(x).numpy(), features.numpy(), atol=2e-5)
    np.testing.assert_allclose(ours.decode(ours.encode(x), x).numpy(), back.numpy(), atol=1e-4)


@pytest.mark.parametrize("name", ["sae_lens standard 5", "sae_lens topk 5"])
def test_files_of_before_version_6_are_read_as_sae_lens_reads_them(name, tmp_path, sae_lens):
    folder = CASES[name](tmp_path / "sae").folder
    theirs, x = sae_lens.SAE.load_from_disk(folder), _states()
    with torch.no_grad():
        wanted = theirs.encode(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(open_sae(folder).encode(x).numpy(), wanted, atol=2e-5)


@pytest.mark.parametrize("kind", ["standard", "topk", "jumprelu", "gated", "batchtopk"])
def test_what_sae_lens_saves_after_training_is_read_as_it_reads_it(kind, tmp_path, sae_lens):
    config = {"standard": "StandardTrainingSAEConfig", "topk": "TopKTrainingSAEConfig", "gated": "GatedTrainingSAEConfig",
              "jumprelu": "JumpReLUTrainingSAEConfig", "batchtopk": "BatchTopKTrainingSAEConfig"}[kind]  # fmt: skip
    more = {"k": 4} if "topk" in kind else {}
    metadata = sae_lens.saes.sae.SAEMetadata(model_name="m", hook_name="blocks.1.hook_resid_post", prepend_bos=True)
    made = getattr(sae_lens, config)(d_in=8, d_sae=24, metadata=metadata, **more)
    torch.manual_seed(0)
    training = getattr(sae_lens, config.removesuffix("Config"))(made)
    with torch.no_grad():
        for parameter in training.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        if kind == "batchtopk":
            training.topk_threshold.fill_(0.4)
    training.save_inference_model(tmp_path / "sae")
    theirs, ours, x = sae_lens.SAE.load_from_disk(tmp_path / "sae"), open_sae(tmp_path / "sae"), _states()
    with torch.no_grad():
        features = theirs.encode(torch.from_numpy(x))
        back = theirs.decode(features)
    np.testing.assert_allclose(ours.encode(x).numpy(), features.numpy(), atol=2e-5)
    np.testing.assert_allclose(ours.decode(ours.encode(x), x).numpy(), back.numpy(), atol=1e-4)
    assert (features > 0).any()
    assert ours.stated.block == 1


def test_features_are_those_of_sparsify_as_sae_lens_reads_it(tmp_path, sae_lens):
    from sae_lens.loading.pretrained_sae_loaders import sparsify_disk_loader

    folder = CASES["sparsify topk"](tmp_path / "sae").folder
    _, tensors = sparsify_disk_loader(folder, cfg_overrides={"dtype": "float32"})
    ours = open_sae(folder)
    np.testing.assert_array_equal(ours.w_enc.numpy(), tensors["W_enc"].numpy())
    np.testing.assert_array_equal(ours.b_dec.numpy(), tensors["b_dec"].numpy())


def test_features_are_those_of_sparsify(tmp_path):
    sparsify = pytest.importorskip("sparsify", reason="pip install eai-sparsify")
    x = _states()
    for name in ("sparsify topk", "sparsify groupmax"):
        folder = CASES[name](tmp_path / name).folder
        theirs, ours = sparsify.SparseCoder.load_from_disk(folder), open_sae(folder)
        # Its fused encoder is compiled; its source is these two lines.
        with torch.no_grad():
            pre = torch.relu(
                torch.nn.functional.linear(
                    torch.from_numpy(x) - theirs.b_dec, theirs.encoder.weight, theirs.encoder.bias
                )
            )
            back = theirs.decode(*pre.topk(theirs.cfg.k, dim=-1)) if "topk" in name else None
        found = ours.encode(x)
        on = found > 0
        np.testing.assert_allclose(found[on].numpy(), pre[on].numpy(), atol=2e-5)
        if back is not None:
            np.testing.assert_allclose(ours.decode(found, x).numpy(), back.numpy(), atol=1e-4)


@pytest.mark.parametrize("kind", ["AutoEncoderTopK", "AutoEncoder", "AutoEncoderNew", "GatedAutoEncoder"])
def test_features_are_those_of_dictionary_learning(kind, tmp_path):
    library = pytest.importorskip("dictionary_learning.dictionary", reason="pip install dictionary-learning")
    folder = CASES[f"dictionary_learning {kind}"](tmp_path / "sae").folder
    ours, x = open_sae(folder, allow_pickle=True), _states()
    state = torch.load(folder / "ae.pt", weights_only=True)
    sizes = (8, 20, 3) if "TopK" in kind else (8, 20)
    if kind == "AutoEncoderTopK":
        library = pytest.importorskip("dictionary_learning.trainers.top_k")
    theirs = getattr(library, kind)(*sizes)
    theirs.load_state_dict(state, strict=False)
    with torch.no_grad():
        features = theirs.encode(torch.from_numpy(x))
    np.testing.assert_allclose(ours.encode(x).numpy(), features.numpy(), atol=2e-5)


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory, sae_lens):
    out = tmp_path_factory.mktemp("trained") / "sae"
    return train_sae(tiny_model("llama"), TEXT, 1, out, SMALL)


@pytest.mark.tiny
def test_training_explains_text_it_has_not_seen(trained):
    held_out = trained.held_out
    assert held_out["explained"].value > 0.5
    assert held_out["explained"].low < held_out["explained"].value < held_out["explained"].high
    assert 0 < held_out["l0"].value <= SMALL.k
    assert 0 <= held_out["dead"].value < 1
    assert held_out["explained"].n_clusters >= 3


@pytest.mark.tiny
def test_what_was_trained_is_read_by_sae_lens_with_the_same_figure(trained, tiny_model, sae_lens):
    """The held-out states one sequence at a time from transformers, and sae-lens for the rest."""
    from lmassay.models.lens_text import sequences

    model = tiny_model("llama")
    theirs, ours = sae_lens.SAE.load_from_disk(trained.path), open_sae(trained.path)
    assert (ours.stated.block, ours.stated.bos, ours.activation.kind) == (1, False, "topk")
    cut = sequences(model, TEXT[: SMALL.tokens * 8], SMALL.batch)
    states = []
    with torch.no_grad():
        for row in cut.held_out:
            seen = model.hf(input_ids=torch.from_numpy(row[None]), output_hidden_states=True).hidden_states
            # Block 1 is the last of this model, so its output is not among the states: see one before the norm.
            kept = []
            handle = model.anatomy.blocks[1].register_forward_hook(
                lambda _, __, out, kept=kept: kept.append(out[0] if isinstance(out, tuple) else out)
            )
            model.hf(input_ids=torch.from_numpy(row[None]))
            handle.remove()
            states.append(kept[0][0, 1:])
            assert len(seen) == model.n_blocks + 1
        x = torch.cat(states)
        back = theirs.decode(theirs.encode(x))
    wanted = 1 - ((x - back) ** 2).sum() / ((x - x.mean(0)) ** 2).sum()
    assert trained.held_out["explained"].value == pytest.approx(float(wanted), abs=1e-4)


@pytest.mark.tiny
def test_the_same_training_ends_with_the_same_weights_and_is_read_and_not_done_again(trained, tiny_model, tmp_path):
    model = tiny_model("llama")
    again = train_sae(model, TEXT, 1, tmp_path / "again", SMALL)
    assert again.sha256 == trained.sha256
    first, second = (load_file(t.path / "sae_weights.safetensors") for t in (trained, again))
    assert all(torch.equal(first[k], second[k]) for k in first)
    before = (trained.path / ABOUT).stat().st_mtime_ns
    assert train_sae(model, TEXT, 1, trained.path, SMALL) == trained
    assert (trained.path / ABOUT).stat().st_mtime_ns == before
    with pytest.raises(LmassayError, match="trained otherwise") as caught:
        train_sae(model, TEXT, 0, trained.path, SMALL)
    assert caught.value.code == "run-folder-mismatch"


@pytest.mark.tiny
def test_training_leaves_torch_s_own_draws_alone(tiny_model, tmp_path, sae_lens):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    train_sae(tiny_model("llama"), TEXT, 0, tmp_path / "sae", SaeSettings(16, 2, 500, 1, 64))
    assert torch.equal(torch.rand(3), wanted)
    assert json.loads((tmp_path / "sae" / "cfg.json").read_text())["metadata"]["context_size"] == 64


def test_importing_the_command_line_imports_no_library():
    code = "import lmassay.cli, sys; sys.exit(int('sae_lens' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
