"""Importing and opening task 1 against a bare orjson loop over its files: ratios in one run.

    python benchmarks/cot_import.py [FOLDER OF JSON FILES]

The tree of JSON files is rebuilt from the Parquet export once. Times are wall-clock, and processor seconds of all
processes together, which other work on the machine disturbs less.
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "cot"))
from json_tree import folder_of, rebuild

from lmassay.cot.published import import_published
from lmassay.examples import texts

REPEATS = int(os.environ.get("REPEATS", "3"))


def loop(paths: list[str]) -> int:
    total = 0
    for path in paths:
        with open(path, "rb") as file:  # noqa: PTH123
            total += len(orjson.loads(file.read()))
    return total


def two_processes(paths: list[str]) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        list(pool.map(loop, [paths[::2], paths[1::2]]))


def processor_seconds() -> float:
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(r.ru_utime + r.ru_stime for r in both)


def timed(run: object) -> tuple[float, float]:
    gc.collect()
    wall, used = time.perf_counter(), processor_seconds()
    run()  # type: ignore[operator]
    return time.perf_counter() - wall, processor_seconds() - used


def resident_mb() -> tuple[float, float]:
    """Memory of this process alone, and with what is mapped from files, MB."""
    found = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines() if "kB" in line)
    own, files = (int(found[k].split()[0]) / 1024 for k in ("RssAnon", "RssFile"))
    return own, own + files


def best(rows: list[tuple[float, float]]) -> tuple[float, float]:
    return min(w for w, _ in rows), min(u for _, u in rows)


def main() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="cot-import-"))
    os.environ["LMASSAY_CACHE"] = str(scratch / "cache")
    tree = Path(sys.argv[1]) if len(sys.argv) > 1 else scratch / "tree"
    if not (tree / "datasets" / "1").is_dir():
        only = {"task1_train", "task1_prompts_train"}
        print(f"{rebuild(tree, tasks=[1], only=only):,} files rebuilt", flush=True)
    folder = folder_of("task1_train", tree)
    paths = sorted(str(folder / e.name) for e in os.scandir(folder))
    try:
        bare, ours = [], []
        for _ in range(REPEATS):
            bare.append(timed(lambda: two_processes(paths)))
            shutil.rmtree(scratch / "cache", ignore_errors=True)
            ours.append(timed(lambda: import_published(tree)))
        (bw, bu), (iw, iu) = best(bare), best(ours)
        print(f"files                       {len(paths):,}")
        print(f"bare orjson loop, two processes   {bw:6.2f} s  {bu:6.2f} processor s")
        print(f"import, two processes             {iw:6.2f} s  {iu:6.2f} processor s")
        print(f"ratio (at most 1.3)               {iw / bw:6.2f}    {iu / bu:6.2f}")
        one = best([timed(lambda: loop(paths)) for _ in range(REPEATS)])

        def opened() -> None:
            # Validation and test sets are not in the rebuilt tree, so the table is opened as load_task does it.
            from lmassay.cot.split import make_split
            from lmassay.cot.store import read_manifest
            from lmassay.cot.tasks import find_task

            task, stored = find_task("1"), read_manifest()
            kept["train"] = make_split(
                task, task.release.splits[0], stored["head/1/train/records"], stored["head/1/train/prompts"]
            )  # type: ignore[union-attr]

        kept: dict[str, object] = {}
        before = resident_mb()
        opening = [timed(opened) for _ in range(REPEATS + 2)]
        ow, ou = best(opening)
        after = resident_mb()
        print(f"reading the JSON files, one process {one[0]:6.2f} s  {one[1]:6.2f} processor s")
        print(f"opening from the store            {ow:8.4f} s {ou:8.4f} processor s")
        print(f"ratio (at least 20)               {one[0] / ow:6.1f}    {one[1] / ou:6.1f}")
        examples = kept["train"].examples  # type: ignore[attr-defined]
        cot = next(c for c in examples.columns if c.kind == "cot")
        megabytes = int(cot.values.size[cot.values.size > 0].sum()) / 2**20
        reading = best([timed(lambda: sum(len(t) for t in _each(examples))) for _ in range(2)])
        full = resident_mb()
        print(f"opening and reading every text    {ow + reading[0]:6.2f} s  {ou + reading[1]:6.2f} processor s")
        print(f"text {megabytes:.0f} MB; memory for it: opened {after[1] - before[1]:.0f} MB,", end=" ")
        print(f"every text read once {full[1] - before[1]:.0f} MB (of its own {full[0] - before[0]:.0f})")
        print(f"ratio (at most 1.3)               {(full[1] - before[1]) / megabytes:6.2f}")
        listed = texts(examples, "cot")
        print(f"as one list of {len(listed):,} Python strings  {resident_mb()[1] - before[1]:.0f} MB")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _each(examples: object) -> object:
    for example in examples:  # type: ignore[attr-defined]
        yield example.segments[-1].text


if __name__ == "__main__":
    main()
