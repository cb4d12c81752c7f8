"""Extraction from end to end: what stands in the store, resuming, shares, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from made_extraction import asked, run, write_data, write_reader

from lmassay.cot.activations import check_store, merge_activations
from lmassay.cot.extraction import Asked, DataSource
from lmassay.cot.kept_tokens import TokenRules
from lmassay.errors import LmassayError
from lmassay.executors.share import parse_share
from lmassay.methods.activations import Activations
from lmassay.storage.activations import ActivationStore

pytestmark = pytest.mark.tiny
TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Another number of threads changes last bits, and a tiny model is too small to share."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A reader and a data file."""
    root = tmp_path_factory.mktemp("place")
    return write_data(root / "data.jsonl"), write_reader(root / "reader")


@pytest.fixture(scope="module")
def whole(place, tmp_path_factory):
    """An extraction that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole") / "store"
    result = run(*place, out)
    assert result.finished
    assert result.made > 6
    return out


def content(folder):
    """Name and digest of every file that a reader of the store reads."""
    paths = [folder / "index.json", folder / "examples.parquet", *(folder / "shards").iterdir()]
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


@torch.no_grad()
def by_hand(reader, text, start, block):
    """States of a block at the tokens of ``text[start:]``, by transformers alone; and those tokens."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(reader), AutoModelForCausalLM.from_pretrained(reader)
    found = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    mine = [i for i, (_, stop) in enumerate(found["offset_mapping"]) if stop > start]
    seen = []
    handle = model.model.layers[block].register_forward_hook(lambda _, __, output: seen.append(output))
    model(torch.tensor([found["input_ids"]]))
    handle.remove()
    states = seen[0][0] if isinstance(seen[0], tuple) else seen[0]
    return states.reshape(-1, states.shape[-1])[mine].double().numpy(), [found["input_ids"][i] for i in mine]


def test_the_store_holds_what_transformers_gives_for_each_text_alone(place, tmp_path):
    data_path, reader = place
    run(data_path, reader, tmp_path / "cot", tokens="cot", storage="float32")
    store = ActivationStore(tmp_path / "cot")
    data = DataSource("reasoning_termination", source=str(data_path)).load()
    for split in ("train", "ood_test"):
        for example in list(data[split].examples)[:6]:
            prompt, cot = example.segments
            key, keys = example.key, np.array([example.key])
            for block in (0, 2):
                own, ids = by_hand(reader, f"{prompt.text}\n\n{cot.text}", len(prompt.text) + 2, block)
                assert store.token_ids(key).tolist() == ids
                assert store.lengths(keys).tolist() == [len(ids)]
                assert store.spans(key) == [("cot", 0, len(ids))]
                for pooling, wanted in (("last", own[-1]), ("mean", own.mean(0)), ("max", own.max(0))):
                    assert store.pooled(keys, block, pooling)[0] == pytest.approx(wanted, rel=1e-5, abs=1e-5)
            assert store.states(key, 2) == pytest.approx(own, rel=1e-5, abs=1e-5)


def test_a_store_is_what_probes_read(whole):
    store = ActivationStore(whole)
    assert isinstance(store, Activations)
    assert (store.width, store.blocks, store.poolings, store.token_blocks) == (
        32,
        (0, 2),
        ("last", "mean", "max"),
        (2,),
    )
    keys = store.examples()["key"].to_numpy()
    assert (store.lengths(keys) > 0).all()
    rows = store.pooled(keys[::-1], 2, "mean")
    assert rows.dtype == np.float32
    for key, row in list(zip(keys[::-1].tolist(), rows, strict=True))[::7]:
        states = store.states(key, 2)
        assert len(states) == len(store.token_ids(key)) == store.spans(key)[-1][2]
        # Token states are bfloat16, pooled ones are not.
        assert row == pytest.approx(states.mean(0), rel=1e-2, abs=1e-2)
        assert store.pooled(np.array([key]), 2, "mean")[0].tolist() == row.tolist()


def test_an_example_that_is_not_there_is_nan_and_has_no_tokens(whole):
    store = ActivationStore(whole)
    known = store.examples()["key"].to_numpy()[:1]
    keys = np.r_[known, 12345]
    assert np.isnan(store.pooled(keys, 0, "max")).all(1).tolist() == [False, True]
    assert store.lengths(keys)[1] == 0
    assert store.states(12345, 2).shape == (0, 32)
    assert store.token_ids(12345).tolist() == store.spans(12345) == []
    assert store.knows(keys).tolist() == [True, False]


@pytest.mark.parametrize(
    ("ask", "named"), [(lambda s: s.states(1, 0), "0"), (lambda s: s.pooled(np.array([1]), 1, "max"), "1"),
                       (lambda s: s.pooled(np.array([1]), 0, "min"), "min")]
)  # fmt: skip
def test_what_was_not_kept_is_refused_by_name(whole, ask, named):
    with pytest.raises(LmassayError, match=named) as refused:
        ask(ActivationStore(whole))
    assert refused.value.code == "bad-request"


def test_a_cap_leaves_whole_questions_and_every_other_row(place, whole, tmp_path):
    run(*place, tmp_path / "few", train_cap=10)
    few, all_ = ActivationStore(tmp_path / "few"), ActivationStore(whole)
    counts = few.index["counts"]["splits"]
    assert counts["train"]["ok"] == 10
    assert {k: v for k, v in counts.items() if k != "train"} == {
        k: v for k, v in all_.index["counts"]["splits"].items() if k != "train"
    }
    keys = few.examples().sort("key")["key"].to_numpy()
    assert few.pooled(keys, 2, "mean") == pytest.approx(all_.pooled(keys, 2, "mean"), rel=1e-5, abs=1e-5)
    assert few.fingerprint != all_.fingerprint


def test_last_keeps_one_state_an_example(place, tmp_path):
    run(*place, tmp_path / "last", tokens="last", token_blocks=())
    store = ActivationStore(tmp_path / "last")
    assert store.poolings == ("last",)
    assert store.token_blocks == ()
    keys = store.examples()["key"].to_numpy()
    assert store.lengths(keys).tolist() == [1] * len(keys)


# Resuming and sharing out


def test_the_same_command_again_makes_nothing_and_changes_nothing(place, whole):
    before = content(whole)
    again = run(*place, whole)
    assert (again.made, again.finished) == (0, True)
    assert content(whole) == before


def test_a_damaged_shard_alone_is_made_again(place, whole, tmp_path):
    out = tmp_path / "store"
    run(*place, out)
    victim = sorted((out / "shards").iterdir())[2]
    victim.write_bytes(victim.read_bytes()[:-3])
    with pytest.raises(LmassayError, match=victim.name) as refused:
        ActivationStore(out)
    assert refused.value.code == "activations-broken"
    again = run(*place, out)
    assert again.made == 1
    assert content(out) == content(whole)


def test_an_altered_byte_of_the_same_length_is_found(place, whole, tmp_path):
    out = tmp_path / "store"
    run(*place, out)
    victim = sorted((out / "shards").iterdir())[0]
    data = bytearray(victim.read_bytes())
    data[-5] ^= 1
    victim.write_bytes(bytes(data))
    with pytest.raises(LmassayError, match="altered") as refused:
        ActivationStore(out)
    assert refused.value.code == "activations-broken"


@pytest.mark.parametrize("harm", ["none", "text", "fields", "table"])
def test_a_store_without_a_whole_index_is_refused(place, tmp_path, harm):
    out = tmp_path / "store"
    run(*place, out)
    if harm == "table":
        pl.read_parquet(out / "examples.parquet").head(3).write_parquet(out / "examples.parquet")
    elif harm == "none":
        (out / "index.json").unlink()
    else:
        (out / "index.json").write_text("{" if harm == "text" else '{"schema_version": 1}')
    with pytest.raises(LmassayError) as refused:
        ActivationStore(out)
    assert refused.value.code == "activations-broken"


def test_three_shares_merged_equal_one_run_byte_for_byte(place, whole, tmp_path):
    parts = []
    for i in (1, 2, 3):
        parts.append(tmp_path / f"part-{i}")
        result = run(*place, parts[-1], share=parse_share(f"{i}/3"))
        assert not result.finished
        assert not (parts[-1] / "index.json").exists()
    with pytest.raises(LmassayError, match="in none of the folders") as refused:
        merge_activations(tmp_path / "lacking", parts[:2])
    assert refused.value.code == "activations-broken"
    merged = merge_activations(tmp_path / "merged", parts)
    assert merged.finished
    assert content(tmp_path / "merged") == content(whole)
    into_one = merge_activations(parts[0], parts)
    assert into_one.finished
    assert content(parts[0]) == content(whole)


def test_shares_in_one_folder_finish_with_the_last(place, whole, tmp_path):
    ends = [run(*place, tmp_path / "one", share=parse_share(f"{i}/3")).finished for i in (3, 1, 2)]
    assert ends == [False, False, True]
    assert content(tmp_path / "one") == content(whole)


def test_shares_of_two_extractions_are_not_merged(place, tmp_path):
    run(*place, tmp_path / "a", share=parse_share("1/2"))
    run(*place, tmp_path / "b", share=parse_share("2/2"), tokens="cot")
    with pytest.raises(LmassayError, match="settings.tokens") as refused:
        merge_activations(tmp_path / "c", [tmp_path / "a", tmp_path / "b"])
    assert refused.value.code == "run-folder-mismatch"


@pytest.mark.slow
def test_killed_at_any_moment_and_started_again_repeats_no_shard_and_ends_the_same(place, whole, tmp_path):
    """SIGKILL after the first, the third and the sixth shard."""
    for after in (1, 3, 6):
        out = tmp_path / f"killed {after}"
        victim = _start(*place, out)
        assert victim.stdout is not None
        seen = 0
        while seen < after:
            seen += victim.stdout.readline().startswith("tokens")
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        made = {p.name: p.stat().st_mtime_ns for p in (out / "shards").glob("[0-9]*")}
        assert len(made) >= after
        assert not (out / "index.json").exists()
        again = _start(*place, out)
        text, _ = again.communicate(timeout=300)
        assert again.returncode == 0
        resumed, rest = map(int, text.splitlines()[-1].split()[1:])
        assert resumed == len(made)
        assert rest > 0
        assert content(out) == content(whole)
        assert made.items() <= {p.name: p.stat().st_mtime_ns for p in (out / "shards").iterdir()}.items()
        assert "examples planned" not in text


def _start(data, reader, out):
    command = [sys.executable, str(Path(__file__).with_name("made_extraction.py")), str(data), str(reader), str(out)]
    environment = os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS / 'cot'}", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


# Rules and what is refused


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Data with two texts over the context of 128 tokens and one empty chain of thought."""
    return write_data(tmp_path_factory.mktemp("uneven") / "data.jsonl", long=2, empty=1)


def test_texts_over_the_context_are_refused_before_a_shard_is_made(place, uneven, tmp_path):
    with pytest.raises(LmassayError, match=r"2 of \d+ texts .* longer than the 128 tokens") as refused:
        run(uneven, place[1], tmp_path / "out")
    assert refused.value.code == "prompt-too-long"
    assert not (tmp_path / "out" / "shards").exists()


@pytest.mark.parametrize(("rule", "skipped"), [("skip", 2), ("left-truncate", 0)])
def test_texts_over_the_context_are_skipped_or_cut_and_counted(place, uneven, tmp_path, rule, skipped):
    run(uneven, place[1], tmp_path / "out", tokens="cot", over_length=rule)
    store = ActivationStore(tmp_path / "out")
    counts = store.index["counts"]
    assert counts["splits"]["test"].get("too_long", 0) == skipped
    # The empty thought is no usable row, so it is not read; it is counted all the same.
    assert counts["splits"]["test"]["empty_cot"] == 1
    assert counts["tokens"]["truncated_examples"] == 2 - skipped
    frame = store.examples()
    assert sum(counts["splits"]["test"].values()) == frame.filter(split="test").height + 1 == 20
    lost = frame.filter(pl.col("status") != "ok")["key"].to_numpy()
    assert np.isnan(store.pooled(lost, 2, "last")).all()
    assert store.lengths(lost).tolist() == [0] * skipped
    assert int(frame["n_read"].filter(frame["status"] == "ok").max()) <= 128


def test_a_capped_thought_fits_and_what_it_lost_is_counted(place, uneven, tmp_path):
    run(uneven, place[1], tmp_path / "out", tokens="cot", max_cot_tokens=30)
    store = ActivationStore(tmp_path / "out")
    frame = store.examples()
    assert int(frame["n_tokens"].max()) == 30
    tokens = store.index["counts"]["tokens"]
    assert tokens["shortened"] == int(frame["n_shortened"].sum()) > 0
    assert tokens["shortened_examples"] == frame.filter(pl.col("n_shortened") > 0).height


def test_a_folder_of_another_extraction_is_refused_naming_the_field(place, whole):
    before = content(whole)
    with pytest.raises(LmassayError, match=r"settings\.max_cot_tokens") as refused:
        run(*place, whole, max_cot_tokens=5)
    assert refused.value.code == "run-folder-mismatch"
    assert content(whole) == before


def test_another_model_is_refused_by_its_weights(place, whole, tmp_path):
    other = write_reader(tmp_path / "other", "llama_tied")
    with pytest.raises(LmassayError, match=r"model\.(weights|config)") as refused:
        run(place[0], other, whole)
    assert refused.value.code == "run-folder-mismatch"


def test_a_store_of_other_data_is_refused_by_what_differs(place, whole, uneven):
    check_store(ActivationStore(whole), DataSource("reasoning_termination", source=str(place[0])).load())
    check_store(ActivationStore(whole), DataSource("reasoning_termination", source=str(place[0]), train_cap=8).load())
    for task, source, field in (("reasoning_termination", uneven, "sha256"), ("atypical_length", uneven, "id")):
        words = Path(source).read_text()
        other = Path(source).with_name(f"{task}.jsonl")
        other.write_text(words.replace('"yes"', '"long"').replace('"no"', '"short"') if "length" in task else words)
        with pytest.raises(LmassayError, match=f"with {field} = ") as refused:
            check_store(ActivationStore(whole), DataSource(task, source=str(other)).load())
        assert refused.value.code == "run-folder-mismatch"


def test_a_probe_runs_on_its_own_store_and_is_refused_another_s(place, whole, uneven):
    from lmassay.cot.evaluate import evaluate

    found = evaluate("reasoning_termination", "mean_difference", source=place[0], activations=whole)
    scored = found.predictions.filter(method_id="mean_difference", split="test")
    assert scored.height == 20
    assert np.isfinite(scored["score"].to_numpy()).all()
    with pytest.raises(LmassayError, match="sha256") as refused:
        evaluate("reasoning_termination", "mean_difference", source=uneven, activations=whole)
    assert refused.value.code == "run-folder-mismatch"


def test_blocks_the_model_does_not_have_are_refused(place, tmp_path):
    with pytest.raises(LmassayError, match="no block 3") as refused:
        run(*place, tmp_path / "out", blocks=(0, 3), token_blocks=())
    assert refused.value.code == "bad-request"


@pytest.mark.parametrize("wrong", [{"blocks": ()}, {"blocks": (1, 1)}, {"token_blocks": (1,)}, {"storage": "int8"}])
def test_requests_that_make_no_sense_are_refused(wrong):
    with pytest.raises(LmassayError) as refused:
        asked(**wrong)
    assert refused.value.code == "bad-request"


def test_a_disk_too_small_is_said_before_the_first_shard(place, tmp_path, monkeypatch):
    import shutil

    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(LmassayError, match="GB free") as refused:
        run(*place, tmp_path / "out")
    assert refused.value.code == "disk-full"
    assert list((tmp_path / "out" / "shards").iterdir()) == []


def test_an_unwritable_folder_fails_before_model_and_data_are_opened(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LmassayError) as refused:
        run(tmp_path / "no such data", tmp_path / "no such model", tmp_path / "file" / "out")
    assert refused.value.code == "out-folder-unwritable"


def test_the_size_announced_is_the_size_written(whole):
    store = ActivationStore(whole)
    need = Asked((0, 2), (2,), TokenRules()).n_bytes(store.examples(), 32)
    written = sum(p.stat().st_size for p in (whole / "shards").iterdir())
    headers = sum(8 + int.from_bytes(p.read_bytes()[:8], "little") for p in (whole / "shards").iterdir())
    assert written == need + headers


def test_nothing_in_the_store_depends_on_where_it_was_made(whole, place):
    text = (whole / "index.json").read_text()
    assert str(place[0]) not in text
    assert str(whole) not in text
    assert "seconds" not in text
    assert json.loads(text)["identity"]["scaffold"]["version"] == 1
