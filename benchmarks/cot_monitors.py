"""Monitors on slices of the tasks with text: their scores with intervals, and the in-process provider's throughput.

    python benchmarks/cot_monitors.py scores OUT [--model lmassay/smollm2-135m] [--tasks 1,…,7] [--limit 40]
                                                 [--max-chars 3000] [--shots 0,4]
    python benchmarks/cot_monitors.py throughput FOLDER [--task 3] [--limit 24] [--shots 0] [--max-chars 3000]
    python benchmarks/cot_monitors.py memory [--items 5000]

`scores` makes a run of each of the four monitors and each task under OUT/runs, and OUT/monitors.csv, which grows with
every run and says slice and length in every row; what is done already is not done again. `throughput` asks the same
items of the model in FOLDER through Inspect's own ``hf`` provider and through ours, one after the other, same limit of
tokens, greedy, without a schema, and prints items a second and the ratio. `memory` runs a mock provider over many items
in a child process, kills it half-way, resumes, and prints the largest resident size at the beginning and at the end of
the second half, and how many items were asked about twice.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

# The peer would ask a hub about a folder, and waiting for it is no part of the comparison; read at import.
os.environ["HF_HUB_OFFLINE"] = "1"

from lmassay.cot.monitors.asking import TRUNCATE, Asking
from lmassay.cot.monitors.run import run_monitor
from lmassay.cot.monitors.settings import Items
from lmassay.storage.atomic import write_text

FIGURES = ("g_mean2", "g_mean2_parsed", "g_mean2_mc", "auroc", "unparsed", "positive_rate", "base_rate", "bias")
COLUMNS = (
    "task",
    "monitor",
    "limit",
    "max_chars",
    "split",
    "figure",
    "value",
    "low",
    "high",
    "n",
    "n_questions",
    "status",
)


def scores(out: Path, model: str, tasks: list[str], limit: int, max_chars: int, every: list[int]) -> None:
    table = out / "monitors.csv"
    rows = list(csv.reader(table.read_text().splitlines()))[1:] if table.exists() else []
    for task in tasks:
        for shots, confidence in [(n, c) for n in every for c in (False, True)]:
            asking = Asking(shots, confidence, max_chars=max_chars, overlength=TRUNCATE)
            named = f"{task}-{shots}shot-{'confidence' if confidence else 'label'}"
            found = run_monitor(Items(task), model, asking, limit=limit, out=out / "runs" / named)
            who = [found.document["identity"]["task"]["id"], named.partition("-")[2]]
            # What an earlier call made stays; the same run's rows are written anew.
            rows = [row for row in rows if row[:2] != who]
            for name, e in found.document["scores"].items():
                split, _, figure = name.partition(".")
                if figure in FIGURES:
                    figures = (e["value"], e["low"], e["high"], e["n"], e["n_clusters"], e["status"])
                    rows.append([*who, limit, max_chars, split, figure, *figures])
            _write(table, sorted(rows, key=lambda row: row[:2]))
            print(
                named, {k: v["value"] for k, v in found.document["scores"].items() if k.endswith("g_mean2")}, flush=True
            )


def _write(path: Path, rows: list[list[Any]]) -> None:
    lines = [COLUMNS, *rows]
    with tempfile.TemporaryFile("w+", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
        file.seek(0)
        write_text(path, file.read())


def throughput(folder: str, task: str, limit: int, shots: int, max_chars: int) -> None:
    from inspect_ai.model import get_model

    models = {
        "hf": get_model("hf/local", model_path=folder, do_sample=False, device="cpu", dtype="float32", memoize=False),
        "lmassay": get_model(f"lmassay/{folder}", memoize=False),
    }
    seconds = {}
    for name, model in models.items():
        started = time.perf_counter()
        found = run_monitor(
            Items(task), model, Asking(shots, max_chars=max_chars, overlength=TRUNCATE), limit=limit, structured=False,
            generation={"max_tokens": 24},
        )  # fmt: skip
        seconds[name] = time.perf_counter() - started
        n = sum(c["n_total"] for c in found.document["counts"].values())
        print(f"{name}: {n} items in {seconds[name]:.1f} s, {n / seconds[name]:.2f} a second", flush=True)
    print(f"ratio {seconds['hf'] / seconds['lmassay']:.2f}")


def memory(items: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "asked.txt"
        child = [sys.executable, __file__, "half", folder, "--items", str(items)]
        first = subprocess.Popen(child)
        while first.poll() is None and (not asked.exists() or asked.read_text().count("\n") < items // 2):
            time.sleep(0.5)
        before = asked.read_text().splitlines()
        first.send_signal(signal.SIGKILL)
        first.wait()
        started = time.perf_counter()
        subprocess.run(child, check=True)
        every = Counter(asked.read_text().splitlines())
        report = json.loads((Path(folder) / "report.json").read_text())
        print(f"{len(before)} asked before kill -9; resumed in {time.perf_counter() - started:.0f} s")
        print(f"{len(every)} items asked, {sum(n - 1 for n in every.values())} twice; {report}")


def half(folder: Path, items: int) -> None:
    """One process of `memory`: appends each item asked about to a file, and says how much memory it took."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    os.environ["INSPECT_LOG_LEVEL"] = "error"
    source = folder / "made.jsonl"
    if not source.exists():
        rows = []
        for split, n in (("train", 200), ("validation", 200), ("test", items - 200)):
            for i in range(n):
                label = ("positive", "negative")[i % 2]
                text = f"{split} {i}: " + ("wait, perhaps. " if i % 3 else "so it is. ") * 60
                rows.append(
                    {"example_id": f"{split}/{i}", "split": split, "question_id": f"{split}{i // 4}", "label": label,
                     "cot": text}
                )  # fmt: skip
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes: list[int] = []
    with (folder / "asked.txt").open("a") as asked:

        def reply(messages: Any, *_: Any) -> ModelOutput:
            asked.write(messages[-1].text[:160].replace("\n", " ") + "\n")
            asked.flush()
            sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
            found = ModelOutput.from_content("mockllm/model", '{"answer": "higher"}')
            found.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
            return found

        model = get_model("mockllm/model", custom_outputs=reply, memoize=False)
        run_monitor(Items("3", source=source), model, out=folder / "run", generation={"max_connections": 20})
    tenth = max(1, len(sizes) // 10)
    (folder / "report.json").write_text(
        json.dumps({"MB_first_tenth": max(sizes[:tenth]) >> 20, "MB_last_tenth": max(sizes[-tenth:]) >> 20})
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("scores", "throughput", "memory", "half"))
    parser.add_argument("where", nargs="?", default="")
    parser.add_argument("--model", default="lmassay/smollm2-135m")
    parser.add_argument("--tasks", default="1,2,3,4,5,6,7")
    parser.add_argument("--task", default="3")
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--shots", default="", help="For scores several, as in 0,4; for throughput one.")
    parser.add_argument("--max-chars", type=int, default=3000)
    parser.add_argument("--items", type=int, default=5000)
    given = parser.parse_args()
    shots = [int(n) for n in (given.shots or {"scores": "0,4"}.get(given.what, "0")).split(",")]
    if given.what == "scores":
        scores(Path(given.where), given.model, given.tasks.split(","), given.limit or 40, given.max_chars, shots)
    elif given.what == "throughput":
        throughput(given.where, given.task, given.limit or 24, shots[0], given.max_chars)
    elif given.what == "memory":
        memory(given.items)
    else:
        half(Path(given.where), given.items)


if __name__ == "__main__":
    main()
