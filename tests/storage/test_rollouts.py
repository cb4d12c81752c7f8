"""The store of samples: each kept once, nothing lost to a kill, damage counted, one writer, a table out and in."""

from __future__ import annotations

import os
import subprocess
import sys

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmassay.errors import LmassayError
from lmassay.storage import rollouts
from lmassay.storage.rollouts import ROLLOUTS, SampleKey, StoredPrompt, StoredSample, opened, settings_key

PROMPT = StoredPrompt((("system", "s"), ("user", "Why?\n\ufeff𝄞")), "<think>\nso")
SETTINGS = {"temperature": 0.7, "top_p": 1.0, "max_tokens": 10, "stop": [], "seed": 0}


def _key(number, prompt=PROMPT, settings=SETTINGS, engine="e"):
    return SampleKey(engine, prompt.key, settings_key(settings), number)


def _fill(folder, numbers, prompt=PROMPT):
    with opened(folder) as store:
        for n in numbers:
            store.add("e", prompt, SETTINGS, n, StoredSample(f"text {n}\n", n, "stop"))


def test_what_was_added_is_there_when_opened_again(tmp_path):
    _fill(tmp_path, range(3))
    with opened(tmp_path) as store:
        assert len(store) == 3
        assert store.get(_key(1)) == StoredSample("text 1\n", 1, "stop")
        assert store.get(_key(3)) is None
        assert _key(2) in store
        assert store.prompt(PROMPT.key) == PROMPT
        assert store.settings(settings_key(SETTINGS)) == SETTINGS
        assert (store.damaged, store.dropped) == (0, 0)


def test_engine_prompt_settings_and_number_each_make_another_sample(tmp_path):
    other = StoredPrompt(PROMPT.messages, PROMPT.prefix + " ")
    hotter = SETTINGS | {"temperature": 0.8}
    with opened(tmp_path) as store:
        for at, (engine, prompt, made, n) in enumerate(
            [("e", PROMPT, SETTINGS, 0), ("f", PROMPT, SETTINGS, 0), ("e", other, SETTINGS, 0),
             ("e", PROMPT, hotter, 0), ("e", PROMPT, SETTINGS, 1)]
        ):  # fmt: skip
            store.add(engine, prompt, made, n, StoredSample(str(at), 1, "stop"))
        assert len(store) == 5
        assert store.get(_key(0, prompt=other)).text == "2"
        assert store.get(_key(0, settings=hotter)).text == "3"


def test_a_sample_that_is_there_stays_as_it_is(tmp_path):
    _fill(tmp_path, [0])
    size = (tmp_path / ROLLOUTS).stat().st_size
    with opened(tmp_path) as store:
        store.add("e", PROMPT, SETTINGS, 0, StoredSample("another", 9, "length"))
        assert store.get(_key(0)).text == "text 0\n"
    assert (tmp_path / ROLLOUTS).stat().st_size == size


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_cut_anywhere_only_whole_samples_are_there_and_the_rest_can_be_added_again(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    _fill(folder, range(4))
    path = folder / ROLLOUTS
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with opened(folder) as store:
        there = [key.number for key in store]
        assert there == list(range(len(there)))
        assert all(store.get(_key(n)).text == f"text {n}\n" for n in there)
        assert store.damaged == 0
    _fill(folder, range(4))
    assert path.read_bytes() == whole


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_an_altered_byte_never_gives_another_sample(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("altered")
    _fill(folder, range(3))
    path = folder / ROLLOUTS
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(len(rollouts.HEAD), len(raw) - 2))
    raw[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(raw))
    with opened(folder) as store:
        for key in store:
            assert store.get(key) == StoredSample(f"text {key.number}\n", key.number, "stop")
        assert len(store) < 3
        assert store.damaged >= 1
    _fill(folder, range(3))
    with opened(folder) as store:
        assert len(store) == 3


def test_a_killed_writer_leaves_every_sample_it_reported(tmp_path):
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom lmassay.storage.rollouts import *\n"
        "with opened(Path(sys.argv[1])) as store:\n"
        "    for n in range(100000):\n"
        "        store.add('e', StoredPrompt((('user', 'a'),), ''), {'seed': 0}, n, StoredSample('x' * 50, 1, 'stop'))\n"
        "        print(n, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        reported = [int(process.stdout.readline()) for _ in range(50)]
        process.kill()
        reported += [int(line) for line in process.stdout.read().split()[:-1]]
    with opened(tmp_path) as store:
        assert {key.number for key in store} >= set(reported)
        assert store.damaged == 0


def test_a_second_writer_is_refused(tmp_path):
    with opened(tmp_path), pytest.raises(LmassayError) as error, opened(tmp_path):
        pass
    assert error.value.code == "run-folder-in-use"
    with opened(tmp_path):
        pass


def test_a_full_disk_is_an_error_and_leaves_no_half_line(tmp_path, monkeypatch):
    _fill(tmp_path, range(2))
    write = os.write
    with opened(tmp_path) as store:
        room = [30]

        def full(file, data):
            if room[0] <= 0:
                raise OSError(28, "No space left on device")
            part = bytes(data)[: room[0]]
            room[0] -= len(part)
            return write(file, part)

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(LmassayError) as error:
            store.add("e", PROMPT, SETTINGS, 2, StoredSample("text 2\n", 2, "stop"))
        assert error.value.code == "disk-full"
        monkeypatch.undo()
        assert len(store) == 2
        store.add("e", PROMPT, SETTINGS, 2, StoredSample("text 2\n", 2, "stop"))
    with opened(tmp_path) as store:
        assert [key.number for key in store] == [0, 1, 2]
        assert (store.damaged, store.dropped) == (0, 0)


@pytest.mark.parametrize("piece", [1, 3, 2000])
def test_a_table_out_and_in_is_the_same_and_adds_only_what_is_new(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(rollouts, "_PIECE", piece)
    _fill(tmp_path / "a", range(5))
    _fill(tmp_path / "a", range(2), StoredPrompt((("user", "b"),), ""))
    _fill(tmp_path / "b", range(3))
    with opened(tmp_path / "a") as a, opened(tmp_path / "b") as b:
        assert a.export_parquet(tmp_path / "out.parquet") == 7
        assert b.import_parquet(tmp_path / "out.parquet") == 4
        assert b.import_parquet(tmp_path / "out.parquet") == 0
        assert set(a) == set(b)
        assert all(a.get(key) == b.get(key) for key in a)
        assert all(a.prompt(key.prompt) == b.prompt(key.prompt) for key in a)
        b.export_parquet(tmp_path / "again.parquet")
    assert (tmp_path / "out.parquet").read_bytes() == (tmp_path / "again.parquet").read_bytes()
    assert pl.read_parquet(tmp_path / "out.parquet")["text"].to_list().count("text 1\n") == 2


def test_what_is_no_table_of_rollouts_is_refused(tmp_path):
    (tmp_path / "text.parquet").write_text("no")
    pl.DataFrame({"text": ["a"]}).write_parquet(tmp_path / "other.parquet")
    with opened(tmp_path / "s") as store:
        for name in ("text", "other", "absent"):
            with pytest.raises(LmassayError) as error:
                store.import_parquet(tmp_path / f"{name}.parquet")
            assert error.value.code == "cot-data-broken"


def test_a_file_of_something_else_is_left_as_it_is(tmp_path):
    (tmp_path / ROLLOUTS).write_text("my notes\n")
    with pytest.raises(LmassayError, match="no rollouts of this version"), opened(tmp_path):
        pass
    assert (tmp_path / ROLLOUTS).read_text() == "my notes\n"


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LmassayError) as error, opened(tmp_path / "file" / "below"):
        pass
    assert error.value.code == "out-folder-unwritable"
