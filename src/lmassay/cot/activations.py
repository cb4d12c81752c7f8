"""Extraction from end to end: what is read is planned, shards are made wherever that is, an index closes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmassay.cot.extraction import Asked, DataSource, Extraction, Extractor, content_of, identity_of
from lmassay.cot.reading_plan import counts_of, reading_plan
from lmassay.cot.scaffold import Scaffold
from lmassay.errors import FAILED_PART_WAY, LmassayError
from lmassay.executors.local import Local, Opened
from lmassay.storage.activations import EXAMPLES, INDEX, KEPT, SHARDS, ActivationStore, write_index
from lmassay.storage.atomic import write_errors, write_parquet, write_with
from lmassay.storage.fingerprint import file_sha256
from lmassay.storage.runs import RunFolder, claimed, first_difference, read_record
from lmassay.storage.shards import Shards

if TYPE_CHECKING:
    import polars as pl

    from lmassay.cot.task import TaskData
    from lmassay.executors.job import Executor
    from lmassay.executors.share import Share
    from lmassay.models.language_model import LanguageModel
    from lmassay.models.source import Reader

Stages = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What an extraction left behind.

    Attributes
    ----------
    path : Path
    record : dict
        The content of ``run.json``.
    resumed, made : int
        Shards found finished, and made now.
    finished : bool
        Whether the index is there; not yet where only a share was made.
    """

    path: Path
    record: dict[str, Any]
    resumed: int
    made: int
    finished: bool


def extract_activations(
    source: DataSource,
    reader: Reader,
    asked: Asked,
    out: Path,
    *,
    executor: Executor | None = None,
    share: Share | None = None,
    command: str = "",
    progress: Stages | None = None,
) -> Result:
    """Keep a reader model's states of a task's examples, all splits in one store.

    The same call again goes on where the last one stopped, and ends with the same bytes.

    Parameters
    ----------
    executor : Executor or None
        Where shards are made. None: in this process, with the model that the plan was made with.
    share : Share or None
        Only this part of the shards; `merge_activations` puts the parts together.
    progress : callable or None
        ``(stage, done, total)``: examples planned, tokens read.

    Raises
    ------
    LmassayError
        ``out-folder-unwritable`` before anything is loaded; ``run-folder-mismatch``, ``run-folder-in-use``,
        ``bad-request``, ``prompt-too-long``, ``disk-full``, ``non-finite-logits``; what loading data and model raises.
    """
    with claimed(out) as folder:
        data = source.load()
        model = reader.open()
        _check_blocks(model, asked)
        scaffold = Scaffold(model.tokens)
        identity = identity_of(data, model, asked, scaffold)
        # What an earlier start of this extraction found out stays known.
        same = folder.record.get("identity") == identity
        known = {k: v for k, v in folder.record.items() if same and k in ("plan", "counts", "timings")}
        folder.bind(identity, command=command, about=_about(data, model, asked), notices=list(data.notes), **known)
        plan = _planned(folder, data, model, scaffold, asked, progress)
        shards, sizes = _sizes(plan)
        wanted = share.taken(shards) if share is not None else shards
        files = Shards(out / SHARDS)
        files.clear_leftovers()
        todo = [n for n in wanted if files.find(n, _content(identity, plan, n)) is None]
        _must_fit(out, asked, plan, todo, folder.record["about"]["width"])
        job: Any = Opened(Extractor(data, model, asked, out, identity))
        if executor is not None:
            import torch

            job = Extraction(source, reader, asked, str(out.resolve()), identity, torch.get_num_threads())
            # The workers open their own.
            del model, scaffold
        began, read = time.perf_counter(), 0
        try:
            for number, tokens in (executor or Local()).run(job, todo):
                read += tokens
                if not files.has(number, _content(identity, plan, number)):
                    raise _not_shared(files, number)
                if progress is not None:
                    progress("tokens", read, sum(sizes[n] for n in todo))
        except KeyboardInterrupt:
            folder.update(status="interrupted")
            raise
        except LmassayError:
            folder.update(status="failed")
            raise
        if todo:
            took = time.perf_counter() - began
            timings = {"seconds": round(took, 2), "tokens": read, "tokens_per_s": round(read / took, 1)}
            folder.update(timings=[*folder.record.get("timings", []), timings])
            # A worker that was killed on the way left what it was writing.
            files.clear_leftovers()
        finished = _finish(folder, plan, files, only=wanted)
        return Result(out, folder.record, len(wanted) - len(todo), len(todo), finished)


def merge_activations(out: Path, parts: Sequence[Path], *, command: str = "") -> Result:
    """Put the shards of several folders, each made with a share of one extraction, into one store.

    Raises
    ------
    LmassayError
        ``run-folder-mismatch`` when the folders are of different extractions; ``activations-broken`` when a shard is
        in none of them, or was cut or altered.
    """
    if not parts:
        raise LmassayError("bad-request", "no folder to merge is named", "name those that shares were made in")
    records = {part: read_record(part) for part in parts}
    first = next(iter(records))
    for part, record in records.items():
        for field in ("identity", "about", "plan"):
            ours, theirs = ({field: r.get(field)} for r in (records[first], record))
            if (differing := first_difference(ours, theirs)) is not None:
                name, one, other = differing
                raise LmassayError(
                    "run-folder-mismatch",
                    f"{first} was made with {name} = {one}, {part} with {other}",
                    "merge the shares of one extraction only",
                )
    if records[first].get("plan") is None:
        raise LmassayError("bad-run-folder", f"{first} holds no plan of an extraction", "run its command again")
    with claimed(out) as folder:
        record = records[first]
        folder.bind(record["identity"], command=command, about=record["about"], notices=record.get("notices", []))
        _copy(first / EXAMPLES, out / EXAMPLES)
        folder.update(plan=record["plan"], counts=record["counts"])
        plan = _read_plan(folder)
        assert plan is not None
        numbers, _ = _sizes(plan)
        files, made = Shards(out / SHARDS), 0
        files.clear_leftovers()
        sources = [Shards(part / SHARDS) for part in parts if part.resolve() != out.resolve()]
        for number in numbers:
            content = _content(record["identity"], plan, number)
            if files.find(number, content) is None:
                found = next((p for s in sources if (p := s.find(number, content)) is not None), None)
                if found is not None:
                    _copy(found, files.folder / found.name)
                    made += 1
        _finish(folder, plan, files, only=numbers, needed=True)
        return Result(out, folder.record, len(numbers) - made, made, True)


def _about(data: TaskData, model: LanguageModel, asked: Asked) -> dict[str, Any]:
    """What a reader of the store is told, the same wherever it was made."""
    from lmassay.models.extract import width_of

    return {
        # A folder is named by its last part: where it lies is no matter of the states.
        "model": Path(model.name).name if Path(model.name).exists() else model.name,
        "task": data.task.id,
        "width": width_of(model),
        "blocks": list(asked.blocks),
        "poolings": list(asked.poolings),
        "token_blocks": list(asked.token_blocks),
        "notes": list(model.notes),
    }


def _check_blocks(model: LanguageModel, asked: Asked) -> None:
    beyond = [b for b in asked.blocks if not 0 <= b < model.n_blocks]
    if beyond:
        raise LmassayError(
            "bad-request",
            f"{model.name} has no block {beyond[0]}",
            f"its blocks are 0 to {model.n_blocks - 1}",
        )


def _planned(
    folder: RunFolder, data: TaskData, model: LanguageModel, scaffold: Scaffold, asked: Asked, progress: Stages | None
) -> pl.DataFrame:
    """The plan of an earlier start of this extraction, or a new one."""
    held = _read_plan(folder)
    if held is not None:
        return held

    def told(done: int, total: int) -> None:
        if progress is not None:
            progress("examples planned", done, total)

    plan = reading_plan(data, model, scaffold, asked.rules, shard_tokens=asked.shard_tokens, progress=told)
    path = folder.path / EXAMPLES
    write_parquet(path, [plan], plan.schema)
    folder.update(plan=file_sha256(path), counts=counts_of(plan, data))
    return plan


def _read_plan(folder: RunFolder) -> pl.DataFrame | None:
    import polars as pl

    path = folder.path / EXAMPLES
    if not path.is_file() or file_sha256(path) != folder.record.get("plan"):
        return None
    return pl.read_parquet(path)


def _sizes(plan: pl.DataFrame) -> tuple[list[int], dict[int, int]]:
    """Numbers of the shards, and the tokens read for each."""
    import polars as pl

    kept = plan.filter(status=KEPT).group_by("shard").agg(pl.col("n_read").sum()).sort("shard")
    sizes = dict(zip(kept["shard"].to_list(), kept["n_read"].to_list(), strict=True))
    return list(sizes), sizes


def _content(identity: dict[str, Any], plan: pl.DataFrame, number: int) -> str:
    return content_of(identity, plan.filter(shard=number).sort("row")["key"].to_numpy())


def _must_fit(out: Path, asked: Asked, plan: pl.DataFrame, todo: Sequence[int], width: int) -> None:
    """Refuse at the start what the disk cannot hold in the end."""
    import polars as pl

    needed = asked.n_bytes(plan.filter(pl.col("shard").is_in(list(todo))), width)
    free = shutil.disk_usage(out).free
    if needed > free:
        raise LmassayError(
            "disk-full",
            f"the activations take {needed / 1e9:.1f} GB, and {out} has {free / 1e9:.1f} GB free",
            "keep the tokens of fewer blocks (--token-blocks), or --tokens last, or cap rows or tokens",
            exit_status=FAILED_PART_WAY,
        )


def _not_shared(files: Shards, number: int) -> LmassayError:
    return LmassayError(
        "activations-broken",
        f"a worker made shard {number}, and it is not in {files.folder}",
        "name a folder as --out that all machines share",
        exit_status=FAILED_PART_WAY,
    )


def _finish(folder: RunFolder, plan: pl.DataFrame, files: Shards, *, only: Sequence[int], needed: bool = False) -> bool:
    """Write the index when every shard is there; False when some are not (an error if they are needed)."""
    numbers, _ = _sizes(plan)
    identity = folder.record["identity"]
    found = {n: files.find(n, _content(identity, plan, n)) for n in numbers}
    lacking = [n for n, path in found.items() if path is None]
    if lacking:
        if needed:
            some = ", ".join(map(str, lacking[:5])) + (" …" if len(lacking) > 5 else "")
            raise LmassayError(
                "activations-broken",
                f"{len(lacking)} of {len(numbers)} shards are in none of the folders, or were cut or altered: {some}",
                "run the commands of the shares again: they make only what is missing",
                exit_status=FAILED_PART_WAY,
            )
        folder.update(status="share done", share=list(only))
        return False
    about = folder.record["about"] | {"counts": folder.record["counts"]}
    write_index(folder.path, identity, about, [path for path in found.values() if path is not None])
    folder.update(status="done", index=file_sha256(folder.path / INDEX))
    return True


def _copy(source: Path, target: Path) -> None:
    """Link a file, or copy it where its disk is another."""
    if target.exists() and target.samefile(source):
        return

    def fill(temporary: Path) -> None:
        temporary.unlink()
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)

    with write_errors(target):
        write_with(target, fill)


def check_store(store: ActivationStore, data: TaskData) -> None:
    """Refuse states that were not made of this data. Rows that were left out by a cap are the caller's to count.

    Raises
    ------
    LmassayError
        ``run-folder-mismatch`` naming the first field that differs.
    """
    held = store.identity.get("task", {})
    # Of a task's whole data a slice takes rows that the states are there for.
    sha256 = data.whole if data.whole and held.get("sha256") == data.whole else data.uncapped or data.fingerprint
    ours = {
        "id": data.task.id,
        "layout": data.layout,
        "regime": data.regime,
        "validation": data.validation,
        "sha256": sha256,
    }
    differing = first_difference({name: held.get(name) for name in ours}, ours)
    if differing is not None:
        name, theirs, wanted = differing
        raise LmassayError(
            "run-folder-mismatch",
            f"{store.folder} holds activations of a task with {name} = {theirs}, this one has {wanted}",
            "extract this task's own with `lmassay cot activations`",
        )
