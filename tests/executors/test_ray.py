"""Ray on this machine: results by number, a killed worker's item done again, one line for what does not answer.

Skipped, visibly, where ray is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
import torch

from lmassay.errors import LmassayError
from lmassay.executors import remote
from lmassay.executors.local import Local

sys.path.insert(0, str(Path(__file__).parent.parent / "cot"))

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")


def _job(folder, die_at=None, fail_at=None):
    """Local classes, which travel to workers by value."""
    from dataclasses import dataclass

    @dataclass
    class Opened:
        where: str
        die: int | None
        fail: int | None

        def run(self, item):
            import os
            import pathlib
            import signal

            from lmassay.errors import LmassayError

            place = pathlib.Path(self.where)
            with (place / f"tried-{item}").open("a") as file:
                file.write(f"{os.getpid()}\n")
            if item == self.die and not (place / "died").exists():
                (place / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if item == self.fail:
                raise LmassayError("disk-full", f"no room for {item}", "free some")
            return item * item

    @dataclass
    class Job:
        where: str
        die: int | None
        fail: int | None

        def open(self):
            import os
            import pathlib

            (pathlib.Path(self.where) / f"opened-{os.getpid()}").touch()
            return Opened(self.where, self.die, self.fail)

    return Job(str(folder), die_at, fail_at)


def _unopenable():
    class Job:
        def open(self):
            from lmassay.errors import LmassayError

            raise LmassayError("model-not-found", "no model here", "bring one")

    return Job()


@needs_ray
@pytest.mark.slow
def test_a_killed_worker_s_item_is_done_again_and_no_other(tmp_path):
    found = dict(remote.Ray(workers=2).run(_job(tmp_path, die_at=4), range(9)))
    assert found == {i: i * i for i in range(9)}
    tries = {i: len((tmp_path / f"tried-{i}").read_text().split()) for i in range(9)}
    assert tries == {i: 2 if i == 4 else 1 for i in range(9)}
    # The dead one and its successor at least; the other may have come late.
    assert len(list(tmp_path.glob("opened-*"))) >= 2


@needs_ray
@pytest.mark.slow
def test_an_error_of_ours_comes_back_as_it_is(tmp_path):
    with pytest.raises(LmassayError, match="no room for 2") as refused:
        list(remote.Ray(workers=1).run(_job(tmp_path, fail_at=2), range(4)))
    assert refused.value.code == "disk-full"


@needs_ray
@pytest.mark.slow
def test_more_workers_than_cores_do_the_work_and_one_that_cannot_open_says_why(tmp_path):
    n = (os.cpu_count() or 1) + 2
    assert dict(remote.Ray(workers=n).run(_job(tmp_path), range(n + 1))) == {i: i * i for i in range(n + 1)}
    with pytest.raises(LmassayError, match="no model here") as refused:
        list(remote.Ray(workers=1).run(_unopenable(), [0]))
    assert refused.value.code == "model-not-found"


@needs_ray
def test_an_address_that_does_not_answer_is_said_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(LmassayError, match=f"no Ray answers at 127.0.0.1:{port}") as refused:
        list(remote.Ray(f"127.0.0.1:{port}").run(_job("nowhere"), [1]))
    assert refused.value.code == "executor-lost"
    assert time.monotonic() - began < 30


@needs_ray
@pytest.mark.parametrize("address", ["localhost", "http://", "ray://", "host:port"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(LmassayError) as refused:
        list(remote.Ray(address).run(_job("nowhere"), [1]))
    assert refused.value.code == "bad-request"


def test_a_missing_ray_is_named_with_the_command_that_installs_it(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "ray" else found(name, *a))
    with pytest.raises(LmassayError, match=r"pip install 'lmassay\[ray\]'") as refused:
        remote.Ray()
    assert refused.value.code == "bad-request"


@needs_ray
@pytest.mark.slow
@pytest.mark.tiny
def test_extraction_on_ray_equals_the_one_here_though_a_worker_is_killed(tmp_path):
    import psutil
    from made_extraction import run, write_data, write_reader

    from lmassay.cot.activations import Result

    data, reader = write_data(tmp_path / "data.jsonl"), write_reader(tmp_path / "reader")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    killed = []

    def told(stage, done, total):
        if stage == "tokens" and not killed:
            workers = [p for p in psutil.Process().children(recursive=True) if "ray::_Worker" in " ".join(p.cmdline())]
            assert workers
            os.kill(workers[0].pid, signal.SIGKILL)
            killed.append(workers[0].pid)
            # A kill in the middle of a shard leaves a file like this one.
            (tmp_path / "there" / "shards" / f".00003-0.{workers[0].pid}.tmp").write_bytes(b"half")

    try:
        here = run(data, reader, tmp_path / "here")
        there: Result = run(data, reader, tmp_path / "there", executor=remote.Ray(workers=2), progress=told)
    finally:
        torch.set_num_threads(before)
    assert killed
    assert there.finished
    assert there.made == here.made
    names = [sorted(p.name for p in (tmp_path / w / "shards").iterdir()) for w in ("here", "there")]
    assert names[0] == names[1]
    assert (tmp_path / "here" / "index.json").read_bytes() == (tmp_path / "there" / "index.json").read_bytes()


@needs_ray
@pytest.mark.slow
@pytest.mark.tiny
def test_several_models_are_measured_on_ray_as_they_are_here(tmp_path):
    from made_extraction import write_reader

    from lmassay.models.source import ModelSource
    from lmassay.storage.runs import read_scores
    from lmassay.xray.many import Measurements
    from lmassay.xray.run import Settings

    sources = tuple(ModelSource(str(write_reader(tmp_path / f, f))) for f in ("llama", "gpt2"))
    settings, found = Settings(phases=("real", "controls")), {}
    for place, executor in (("here", Local()), ("there", remote.Ray(workers=2))):
        outs = tuple(str(tmp_path / place / name) for name in ("a", "b"))
        job = Measurements(sources, outs, "balanced:4", settings, "logit", "a test", 1)
        before = torch.get_num_threads()
        try:
            assert dict(executor.run(job, [0, 1])) == dict(enumerate(outs))
        finally:
            torch.set_num_threads(before)
        found[place] = [read_scores(Path(out))["scores"] for out in outs]
    assert found["here"] == found["there"]
    assert found["here"][0] != found["here"][1]
