"""Import: every source gives the same store, what does not fit is named, and a stopped import goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile

import polars as pl
import pytest
from json_tree import EXPORT, rebuild
from made_release import made, write_checkout, write_export

from lmassay.cot.download import download
from lmassay.cot.load import load_task
from lmassay.cot.published import import_published
from lmassay.cot.store import read_manifest, store_folder
from lmassay.cot.tasks import tasks
from lmassay.errors import LmassayError

needs_export = pytest.mark.skipif(not EXPORT.is_dir(), reason="the published data is not beside this checkout")


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("LMASSAY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def checkout(tmp_path):
    return write_checkout(tmp_path / "checkout", made())


def digests():
    return {id_: table.digest for id_, table in read_manifest().items()}


def table(report, id_):
    return next(t for t in report.tables if t.table == id_)


def test_a_checkout_an_archive_and_parquet_give_the_same_store(tmp_path, checkout):
    report = import_published(checkout)
    assert {t.status for t in report.tables} == {"imported"}
    assert report.kind == "checkout"
    from_checkout = digests()
    assert len(from_checkout) == len(report.tables)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(checkout, "cot-proxy-tasks-4482324")
    assert {t.status for t in import_published(tmp_path / "a.tar.gz").tables} == {"unchanged"}
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        for path in checkout.rglob("*.json"):
            zipped.write(path, path.relative_to(tmp_path))
    assert {t.status for t in import_published(tmp_path / "a.zip").tables} == {"unchanged"}
    again = import_published(write_export(tmp_path / "export", made()))
    assert again.kind == "parquet"
    assert {t.status for t in again.tables} == {"unchanged"}
    assert digests() == from_checkout


def test_one_process_and_two_give_the_same_store(checkout):
    import_published(checkout, processes=1)
    one = digests()
    (store_folder() / "manifest.json").unlink()
    import_published(checkout, processes=2)
    assert digests() == one


def test_files_that_do_not_fit_are_named_counted_and_kept_out(checkout):
    folder = checkout / "datasets" / "1" / "qwen-3-32b" / "train"
    names = sorted(p.name for p in folder.iterdir())
    (folder / names[0]).write_text('{"question_id": "q"')
    wrong = json.loads((folder / names[1]).read_text()) | {"label": "perhaps"}
    (folder / names[1]).write_text(json.dumps(wrong))
    (folder / names[2]).write_bytes((folder / names[3]).read_bytes().replace(b"Thought", b"\\ud83d"))
    (folder / ".DS_Store").write_bytes(b"\0")
    (folder / "notes.txt").write_text("not data")
    (checkout / "datasets" / "1" / "list.csv").write_text("not data")
    report = import_published(checkout)
    found = table(report, "head/1/train/records")
    assert [name for name, _ in found.kept_out] == names[:3]
    reasons = [why for _, why in found.kept_out]
    assert "not JSON" in reasons[0]
    assert "'perhaps' is none of yes, no" in reasons[1]
    assert "surrogate" in reasons[2]
    assert found.found == len(names) - 3
    assert not report.as_published
    assert report.strays == ("1/list.csv", "1/qwen-3-32b/train/notes.txt")
    assert len(load_task("1")["train"]) == len(names) - 3


def test_a_missing_split_is_said_and_the_rest_is_imported(checkout):
    for path in (checkout / "datasets" / "3" / "qwen-3-32b" / "test").iterdir():
        path.unlink()
    path.parent.rmdir()
    report = import_published(checkout)
    assert table(report, "head/3/test/records").status == "missing"
    assert table(report, "head/3/test/records").expected == 86
    with pytest.raises(LmassayError, match="follow_up_confidence, split test of the layout head"):
        load_task("follow_up_confidence")
    assert load_task("atypical_answer").test_splits == ("test", "ood_test")


@pytest.mark.parametrize("damage", ["cut", "garbage", "other column"])
def test_a_parquet_file_that_cannot_be_read_is_said_and_the_rest_is_imported(tmp_path, damage):
    root = write_export(tmp_path / "export", made())
    path = root / "task6" / "task6_test.parquet"
    match damage:
        case "cut":
            path.write_bytes(path.read_bytes()[:-40])
        case "garbage":
            path.write_bytes(b"PAR1 nothing of the kind PAR1")
        case _:
            pl.read_parquet(path).drop("_file").write_parquet(path)
    report = import_published(root)
    assert table(report, "head/6/test/records").status == "unreadable"
    assert "task6_test.parquet" in table(report, "head/6/test/records").why
    assert "head/6/train/records" in read_manifest()


def test_a_name_that_stands_twice_is_kept_out_once(tmp_path):
    root = write_export(tmp_path / "export", made())
    path = root / "task6" / "task6_test.parquet"
    frame = pl.read_parquet(path)
    pl.concat([frame, frame.head(2)]).write_parquet(path)
    found = table(import_published(root), "head/6/test/records")
    assert found.found == frame.height
    assert [why.partition(":")[0] for _, why in found.kept_out] == ["duplicate id"] * 2


def test_two_files_of_one_identity_are_both_unusable(checkout):
    folder = checkout / "datasets" / "6" / "qwen-3-32b" / "test"
    first = sorted(folder.iterdir())[0]
    (folder / "copy.json").write_text(first.read_text())
    import_published(checkout)
    assert load_task("6")["test"].counts == {"duplicate_id": 2, "ok": 7}


def test_an_archive_that_is_cut_short_is_refused_and_leaves_the_store(tmp_path, checkout):
    import_published(checkout)
    before = digests()
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(checkout, "c")
    whole = (tmp_path / "a.tar.gz").read_bytes()
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        (tmp_path / "a.tar.gz").write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(LmassayError, match=r"a\.tar\.gz cannot be read"):
            import_published(tmp_path / "a.tar.gz")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        zipped.writestr("datasets/1/prompts/train/a.json", "{}" * 400)
    (tmp_path / "a.zip").write_bytes((tmp_path / "a.zip").read_bytes()[:300])
    with pytest.raises(LmassayError, match=r"a\.zip cannot be read"):
        import_published(tmp_path / "a.zip")
    assert digests() == before


def test_no_member_of_an_archive_is_written_outside(tmp_path, checkout):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        for path in checkout.rglob("*.json"):
            zipped.write(path, path.relative_to(checkout))
        zipped.writestr("datasets/1/../../../../escaped.json", "{}")
        zipped.writestr("datasets/1/qwen-3-32b/train/../../../../../escaped.json", "{}")
        zipped.writestr("/escaped.json", "{}")
    import_published(tmp_path / "a.zip")
    assert not list(tmp_path.rglob("escaped.json"))


def test_a_member_that_stands_twice_in_an_archive_is_refused_once(tmp_path, checkout):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        for path in checkout.rglob("*.json"):
            zipped.write(path, path.relative_to(checkout))
        with pytest.warns(UserWarning, match="Duplicate name"):
            zipped.writestr("datasets/1/prompts/train/train_q0.json", "{}")
    report = import_published(tmp_path / "a.zip")
    assert report.refused == ("datasets/1/prompts/train/train_q0.json: twice in the archive",)


def test_a_source_that_is_none_is_refused(tmp_path):
    with pytest.raises(LmassayError, match="neither a checkout"):
        import_published(tmp_path)
    with pytest.raises(LmassayError, match="no such file"):
        import_published(tmp_path / "nothing")
    (tmp_path / "a.rar").write_bytes(b"")
    with pytest.raises(LmassayError, match="no archive we read"):
        import_published(tmp_path / "a.rar")


def test_an_april_checkout_is_the_layout_post(tmp_path):
    tables = {
        k: v for k, v in made().items() if not k.startswith(("task1_", "task2_", "task4_ood", "task4_prompts_ood"))
    }
    report = import_published(write_checkout(tmp_path / "april", tables | made("post")))
    assert report.layouts == ("post",)
    assert all(t.table.startswith("post/") for t in report.tables)
    data = load_task("1", "post", "ood")
    assert [len(s) for s in data.splits.values()] == [8, 8, 8]
    assert data["train"].hidden["example_id"][0].startswith("post/1/ood_train/")
    assert data["validation"].hidden["example_id"][0].startswith("post/1/ood_test/")
    assert data.ood_splits == ("test",)
    assert load_task("1", "post", "id").ood_splits == ()
    assert load_task("4", "post")["ood_test"].hidden["example_id"][0].startswith("post/4/")
    with pytest.raises(LmassayError, match="the store has the layout post"):
        load_task("1")


def test_an_altered_file_of_the_store_is_found_and_mended_by_importing_again(checkout):
    import_published(checkout)
    before = digests()
    folder = read_manifest()["head/6/test/records"].folder
    text = folder / "00000.cot_content.text"
    text.write_bytes(text.read_bytes()[:-1])
    with pytest.raises(LmassayError, match="cut short"):
        load_task("6")
    text.write_bytes(b"\xff" * read_manifest()["head/6/test/records"].about["parts"][0]["texts"]["cot_content"][0])
    with pytest.raises(LmassayError, match="no UTF-8"):
        [e.text() for e in load_task("6")["test"].examples]
    assert read_manifest()["head/6/test/records"].faults() == ["00000.cot_content.text"]
    report = import_published(checkout)
    assert [t.table for t in report.tables if t.status == "imported"] == ["head/6/test/records"]
    assert digests() == before
    assert all(not t.faults() for t in read_manifest().values())
    (store_folder() / "manifest.json").write_text('{"version": 1, "tables"')
    with pytest.raises(LmassayError, match="manifest"):
        load_task("6")
    import_published(checkout)
    assert digests() == before


def test_an_import_that_was_killed_leaves_the_store_and_goes_on(tmp_path, checkout, monkeypatch):
    """Killed at any moment: what is whole stays, what changed since is read again."""
    import_published(checkout)
    before = digests()
    monkeypatch.setenv("LMASSAY_CACHE", str(tmp_path / "fresh"))
    source = f"from lmassay.cot.published import import_published; import_published({str(checkout)!r}, processes=1)"
    process = subprocess.Popen([sys.executable, "-c", source])
    work = tmp_path / "fresh" / "cot" / "importing"
    while process.poll() is None and not list(work.glob("*/*/00000.json")):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = sorted(p.parent.name for p in work.glob("*/*/00000.json"))
    assert not read_manifest() or not done
    seen = []
    import_published(checkout, processes=1, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (len(done) + 1, len(before))
    assert digests() == before
    assert not list(work.iterdir())


def test_a_file_that_changed_since_a_stopped_import_is_read_again(checkout):
    def stop(done, total):
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_published(checkout, processes=1, progress=stop)
    assert not read_manifest()
    folder = checkout / "datasets" / "6" / "qwen-3-32b" / "test"
    path = sorted(folder.iterdir())[0]
    path.write_text(path.read_text().replace("Thought 0", "Thought 9"))
    os.utime(path, ns=(time.time_ns(), time.time_ns()))
    seen = []
    import_published(checkout, processes=1, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == [seen[0][1]]
    assert any("Thought 9" in e.text("cot") for e in load_task("6")["test"].examples)


def test_a_commit_is_downloaded_or_the_network_is_said_to_be_away(tmp_path, checkout):
    with tarfile.open(tmp_path / "served-0123abc.tar.gz", "w:gz") as archive:
        archive.add(checkout, "cot-proxy-tasks-0123abc")
    served = download("published@0123abc", tmp_path, url=f"{tmp_path.as_uri()}/served-{{commit}}.tar.gz")
    assert import_published(served).kind == "checkout"
    with pytest.raises(LmassayError, match="network-unavailable") as refused:
        download("published@0123abc", tmp_path, url="http://127.0.0.1:9/{commit}")
    assert refused.value.exit_status == 3
    with pytest.raises(LmassayError, match="names no commit"):
        import_published("published@../../etc")


@needs_export
@pytest.mark.slow
def test_the_published_data_is_as_the_specification_counts_it():
    report = import_published(EXPORT)
    assert report.as_published
    assert len(report.tables) == 99
    for task in tasks():
        data = load_task(task.id, validation="published")
        for split in task.release.splits:
            if split.layout == "head" and task.kind in ("binary", "interventional"):
                assert int(data[split.name].hidden["y"].sum()) == split.positives, (task.id, split.name)


@needs_export
def test_a_rebuilt_tree_gives_what_the_parquet_gives(tmp_path):
    """Real records, every quirk with them: thinking as string and as list, absent keys, 2, 4 and 5 letters."""
    only = {"task3_val", "task3_prompts_val", "task5_ood_test", "task5_prompts_ood_test", "task8_ood_test_1",
            "task8_prompts_ood_test_1", "task2_ood_test", "task2_prompts_ood_test"}  # fmt: skip
    rebuild(tmp_path / "tree", tasks=(2, 3, 5, 8), only=only)
    for stem in only:
        (tmp_path / "some" / stem[:5]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "some" / stem[:5] / f"{stem}.parquet").symlink_to(EXPORT / stem[:5] / f"{stem}.parquet")
    import_published(tmp_path / "tree")
    from_tree = digests()
    report = import_published(tmp_path / "some")
    assert {t.status for t in report.tables if t.found} == {"unchanged"}
    assert digests() == from_tree
    assert all(t.as_published for t in report.tables if t.status != "missing")
