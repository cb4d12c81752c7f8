"""Samples of subject models, each kept once, in a file that is only ever added to.

A line holds the first half of its own digest and a JSON record: a prompt, a setting, or a sample that names both. A
killed writer leaves at most one cut line at the end, which is dropped; a line altered later is dropped and counted,
and its sample drawn anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.storage.atomic import write_errors, write_parquet
from lmassay.storage.held import held_folder

ROLLOUTS = "rollouts.jsonl"
#: First bytes of the file: what it is, and the version of its records.
HEAD = b"lmassay rollouts 1\n"
_DIGEST = 32
#: Samples of one piece of an exported table.
_PIECE = 2000
SCHEMA: dict[str, Any] = {
    "engine": pl.String,
    "messages": pl.List(pl.Struct({"role": pl.String, "text": pl.String})),
    "prefix": pl.String,
    "settings": pl.String,
    "number": pl.Int64,
    "text": pl.String,
    "n_tokens": pl.Int64,
    "finish": pl.String,
}


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """The turns (role, text) before the assistant's own, and its beginning."""

    messages: tuple[tuple[str, str], ...]
    prefix: str

    @property
    def key(self) -> str:
        """sha256 of the content."""
        return _key([self.messages, self.prefix])


@dataclass(frozen=True, slots=True)
class StoredSample:
    """A continuation as it was drawn."""

    text: str
    n_tokens: int
    finish: str


@dataclass(frozen=True, slots=True)
class SampleKey:
    """What a sample is a sample of.

    Attributes
    ----------
    engine : str
        The engine's fingerprint.
    prompt, settings : str
        Keys of what was stored under them.
    number : int
        Which of the samples drawn alike.
    """

    engine: str
    prompt: str
    settings: str
    number: int


def settings_key(settings: Mapping[str, Any]) -> str:
    """sha256 of how a sample was drawn: everything that decides it beside model and prompt."""
    return _key(dict(settings))


class RolloutStore:
    """The samples of one folder; `opened` gives one.

    Attributes
    ----------
    damaged : int
        Lines that were altered after they were written.
    dropped : int
        1 where the last line had been cut.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / ROLLOUTS
        self.damaged = 0
        self.dropped = 0
        self._places: dict[SampleKey, tuple[int, int]] = {}
        self._prompts: dict[str, tuple[int, int]] = {}
        self._settings: dict[str, Mapping[str, Any]] = {}
        self._end = 0
        with write_errors(self.path):
            # Without a buffer of Python's own: after a failed write nothing is left that a later one would repeat.
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            self._load()
        except BaseException:
            os.close(self._file)
            raise

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[SampleKey]:
        return iter(self._places)

    def get(self, key: SampleKey) -> StoredSample | None:
        """A sample, or None where it has not been drawn."""
        place = self._places.get(key)
        if place is None:
            return None
        record = self._read(place)
        return StoredSample(record["text"], record["n_tokens"], record["finish"])

    def prompt(self, key: str) -> StoredPrompt:
        """The prompt of that key; KeyError where there is none."""
        record = self._read(self._prompts[key])
        return StoredPrompt(tuple((role, text) for role, text in record["messages"]), record["prefix"])

    def settings(self, key: str) -> Mapping[str, Any]:
        """The settings of that key; KeyError where there are none."""
        return self._settings[key]

    def add(
        self, engine: str, prompt: StoredPrompt, settings: Mapping[str, Any], number: int, sample: StoredSample
    ) -> None:
        """Keep a sample, on disk when this returns. One that is there already stays as it is.

        Raises
        ------
        LmassayError
            ``disk-full``; what was written of the sample is taken back.
        """
        key = SampleKey(engine, prompt.key, settings_key(settings), number)
        if key in self._places:
            return
        if key.prompt not in self._prompts:
            content = {"messages": prompt.messages, "prefix": prompt.prefix}
            self._prompts[key.prompt] = self._append({"kind": "prompt", "key": key.prompt, **content})
        if key.settings not in self._settings:
            self._append({"kind": "settings", "key": key.settings, "settings": dict(settings)})
            self._settings[key.settings] = dict(settings)
        self._places[key] = self._append({"kind": "sample", **asdict(key), **asdict(sample)})

    def flush(self) -> None:
        """Make the system write what it holds back, against a loss of power; a killed process loses nothing."""
        with write_errors(self.path):
            os.fsync(self._file)

    def close(self) -> None:
        """Finish."""
        with suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)

    def export_parquet(self, path: Path) -> int:
        """Write every sample with its prompt and settings as one table; returns how many."""
        write_parquet(path, self._frames(), SCHEMA)
        return len(self)

    def import_parquet(self, path: Path) -> int:
        """Add the samples of an exported table that are not there yet; returns how many those were.

        Raises
        ------
        LmassayError
            ``cot-data-broken`` when it is no such table.
        """
        try:
            frame = pl.read_parquet(path)
            missing = sorted(set(SCHEMA) - set(frame.columns))
            if missing:
                raise ValueError(f"it lacks the columns {', '.join(missing)}")
            frame = frame.select(list(SCHEMA)).cast(pl.Schema(SCHEMA))
            if frame.null_count().sum_horizontal().item():
                raise ValueError("it has empty cells")
            settings = {text: json.loads(text) for text in frame["settings"].unique()}
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            why = " ".join(str(error).split())[:160]
            raise LmassayError("cot-data-broken", f"{path}: {why}", "export the rollouts again") from error
        before = len(self)
        for row in frame.iter_rows(named=True):
            prompt = StoredPrompt(tuple((m["role"], m["text"]) for m in row["messages"]), row["prefix"])
            sample = StoredSample(row["text"], row["n_tokens"], row["finish"])
            self.add(row["engine"], prompt, settings[row["settings"]], row["number"], sample)
        return len(self) - before

    def _frames(self) -> Iterator[pl.DataFrame]:
        keys = sorted(self._places, key=lambda k: (k.engine, k.prompt, k.settings, k.number))
        for start in range(0, len(keys), _PIECE):
            yield pl.DataFrame([self._row(key) for key in keys[start : start + _PIECE]], schema=SCHEMA)

    def _row(self, key: SampleKey) -> dict[str, Any]:
        prompt, sample = self.prompt(key.prompt), self.get(key)
        assert sample is not None
        return {
            "engine": key.engine,
            "messages": [{"role": role, "text": text} for role, text in prompt.messages],
            "prefix": prompt.prefix,
            "settings": _json(dict(self.settings(key.settings))),
            "number": key.number,
            **asdict(sample),
        }

    def _append(self, record: Mapping[str, Any]) -> tuple[int, int]:
        body = _json(record).encode("utf-8")
        line = hashlib.sha256(body).hexdigest()[:_DIGEST].encode() + b" " + body + b"\n"
        try:
            with write_errors(self.path):
                self._write(line)
        except LmassayError:
            # A part of the line may be there; cut, the next one stands on a line of its own.
            with suppress(OSError):
                os.truncate(self.path, self._end)
            raise
        place = (self._end, len(line))
        self._end += len(line)
        return place

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]

    def _read(self, place: tuple[int, int]) -> dict[str, Any]:
        record = _record(os.pread(self._file, place[1], place[0]))
        if record is None:
            raise LmassayError(
                "cot-data-broken",
                f"{self.path}: a line at byte {place[0]} changed while it was in use",
                "run the same command again: what is damaged is drawn anew",
                exit_status=FAILED_PART_WAY,
            )
        return record

    def _load(self) -> None:
        """Find every record; cut what a killed writer left."""
        with self.path.open("rb") as file:
            head = file.readline()
            if head != HEAD:
                if not HEAD.startswith(head):
                    raise LmassayError(
                        "cot-data-broken", f"{self.path} holds no rollouts of this version", "name another folder"
                    )
                with write_errors(self.path):
                    os.truncate(self.path, 0)
                    self._write(HEAD)
            self._end = len(HEAD)
            for line in file if head == HEAD else ():
                if not line.endswith(b"\n"):
                    self.dropped = 1
                    with write_errors(self.path):
                        os.truncate(self.path, self._end)
                    break
                place = (self._end, len(line))
                self._end += len(line)
                record = _record(line)
                if record is None or not self._known(record, place):
                    self.damaged += 1
        # A sample whose prompt or settings were lost cannot be told apart from another's.
        lost = [k for k in self._places if k.prompt not in self._prompts or k.settings not in self._settings]
        for key in lost:
            del self._places[key]

    def _known(self, record: Mapping[str, Any], place: tuple[int, int]) -> bool:
        kind = record.get("kind")
        if kind == "sample":
            key = SampleKey(record["engine"], record["prompt"], record["settings"], record["number"])
            self._places.setdefault(key, place)
        elif kind == "prompt":
            self._prompts.setdefault(record["key"], place)
        elif kind == "settings":
            self._settings.setdefault(record["key"], record["settings"])
        else:
            return False
        return True


def _record(line: bytes) -> dict[str, Any] | None:
    """The record of a whole line; None where it is not what was written."""
    digest, _, body = line.rstrip(b"\n").partition(b" ")
    if hashlib.sha256(body).hexdigest()[:_DIGEST].encode() != digest:
        return None
    found = json.loads(body)
    return found if isinstance(found, dict) else None


def _json(content: Mapping[str, Any] | Sequence[Any]) -> str:
    # Escaped to ASCII, so that a lone surrogate in a model's text can be written.
    return json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def _key(content: Mapping[str, Any] | Sequence[Any]) -> str:
    return hashlib.sha256(_json(content).encode()).hexdigest()


@contextmanager
def opened(folder: Path) -> Iterator[RolloutStore]:
    """Hold a folder of rollouts for reading and adding, made if needed.

    Raises
    ------
    LmassayError
        ``run-folder-in-use``, ``out-folder-unwritable``, ``cot-data-broken``.
    """
    with held_folder(folder, "name another folder"):
        store = RolloutStore(folder)
        try:
            yield store
        finally:
            store.close()
