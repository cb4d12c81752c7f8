"""Make the demo's data set again: every task that the bundled model carries, from samples that the tasks share.

    python examples/demo_data.py [--work build/demo] [--tasks atypical_answer,…] [--package]

Each task is built by the command that its card shows, in one process so that the model is opened once; an interrupted
build goes on. ``--package`` then puts the data, the samples and the cards into the package, ``src/lmassay/cot/demo``.
About an hour and a half on one core; numbers are small, so thresholds are far from the published ones.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lmassay.cot.build.prompts import read_questions
from lmassay.cot.build.run import CARD, CELLS, DATA, RECIPE, ROLLOUTS, generate
from lmassay.errors import LmassayError
from lmassay.models.attended import SentenceAttention
from lmassay.models.drawing import Wanted, drawn_all
from lmassay.models.generate import InProcess
from lmassay.models.open import open_model
from lmassay.models.sampling import Pace
from lmassay.storage.rollouts import RolloutStore, opened

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "lmassay" / "cot" / "demo"
MODEL = "smollm2-135m"
#: Fewer examples than this are no data to show a method on.
LEAST = 20
#: Seconds between two lines of progress.
EVERY = 20.0
_last = 0.0
ALL, ARMS = "examples/questions/demo.jsonl", "examples/questions/demo_arms.jsonl"
#: Task -> its questions, and its options beside the published values. The first tasks take the same samples.
RECIPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "atypical_answer": (
        ALL, ("rollouts=8", "rule.least_rollouts=3", "rule.high=0.67", "rule.each=4", "sampling.max_tokens=120")),
    "atypical_length": (
        ALL, ("rollouts=8", "rule.least_rollouts=3", "rule.spread=5", "rule.deviations=0.3", "rule.bin=60",
              "sampling.max_tokens=120")),
    "answer_entropy": (ALL, ("rollouts=3", "most=5", "sampling.max_tokens=120")),
    "compression": (
        ALL, ("rollouts=2", "shortest=8", "step=2", "keep=1,2,3",
              "selectors=last_m,random,single_sentence_oracle,last_sentence_attention,next_sentence_attention_oracle",
              "sampling.max_tokens=120")),
    "self_deletion": (
        ARMS, ("rollouts=2", "turns=2", "resamples=4", "candidates=1", "rule.least_words=10",
               "sampling.max_tokens=60")),
    "authority_hint": (ARMS, ("samples=8", "sampling.max_tokens=120")),
    "reasoning_termination": (
        ALL, ("rollouts=8", "resamples=8", "candidates=1", "least_words=8", "most_words=90", "bin=40",
              "rule.agree=0.75", "rule.first=5", "rule.last=30", "rule.after=50", "rule.near=4,8,12,16",
              "rule.far=40,20", "rule.least_words=8", "sampling.max_tokens=120")),
    "user_preference": (ARMS, ("samples=8", "sampling.max_tokens=120")),
    "follow_up_confidence": (
        ARMS, ("baseline=8", "extremes=2", "resamples=4", "answer_tokens=60", "score_tokens=6",
               "sampling.max_tokens=120")),
}  # fmt: skip


def command_of(task: str) -> str:
    """The command that builds a task, as a card shows it."""
    questions, options = RECIPES[task]
    words = ["lmassay", "cot", "generate", task, "--model", MODEL, "--prompts", questions, "--rollouts"]
    words += [f"build/demo/{ROLLOUTS}", "--out", f"build/demo/{task}"]
    return shlex.join([*words, *(word for option in options for word in ("--option", option))])


def build(task: str, engine: InProcess, store: RolloutStore, work: Path) -> None:
    """One task's data, or its card alone where no example qualified."""
    questions, options = RECIPES[task]
    attended = SentenceAttention(engine) if task == "compression" else None

    def draw(asked: Sequence[tuple]) -> list:
        return drawn_all(store, engine, [Wanted(*one) for one in asked], 0, progress=_told)

    folder = work / task
    folder.mkdir(parents=True, exist_ok=True)
    try:
        read = read_questions(ROOT / questions, task)
        built = generate(task, engine, read, draw, folder, options=options, attended=attended)
        print(f"{task}: {built.rows} examples", file=sys.stderr, flush=True)
    except LmassayError as error:
        if error.code != "nothing-built":
            raise
        print(f"{task}: {error}", file=sys.stderr, flush=True)


def _told(pace: Pace) -> None:
    global _last
    if time.monotonic() - _last > EVERY:
        _last = time.monotonic()
        print(
            f"  {pace.done} of {pace.total} samples, {pace.tokens_per_second:.0f} tokens/s", file=sys.stderr, flush=True
        )


def package(work: Path, store: RolloutStore) -> None:
    """Put what was built into the package: a Parquet file a task, the samples, and one card."""
    lines = [
        "# The demo's data",
        "",
        f"Made by `python examples/demo_data.py --package`: the bundled model `{MODEL}` on questions of our own",
        "(`examples/questions/make_demo.py`). The samples that labels came from are in `rollouts.parquet`. Numbers are",
        "small and thresholds are not the published ones, so no figure on this data says anything of the published",
        "tasks. The model has no thinking format: its whole reply is the chain of thought. What follows is each task's",
        "own card.",
        "",
    ]
    recipes = {}
    for task in RECIPES:
        folder = work / task
        if not (folder / RECIPE).exists():
            continue
        recipes[task] = json.loads((folder / RECIPE).read_text())
        examples = recipes[task]["examples"]
        (PACKAGE / f"{task}.parquet").unlink(missing_ok=True)
        for name in (DATA, CELLS):
            if (folder / name).exists() and examples >= LEAST:
                shutil.copyfile(folder / name, PACKAGE / f"{task}.parquet")
        card = (folder / CARD).read_text().splitlines()
        said = f"{examples:,} examples."
        if examples < LEAST:
            said = f"Not in the package: {examples} examples qualified, of {LEAST} that it takes."
        lines += [f"## {task}", "", said]
        lines += ["", "```console", f"$ {command_of(task)}", "```", ""]
        lines += [f"#{line}" if line.startswith("## ") else line for line in card[card.index("## Recipe") :]]
        lines.append("")
    lacking = [task for task in RECIPES if task not in recipes]
    if lacking:
        lines += [
            "## Not built yet",
            "",
            "These take more machine time than was to be had; nothing is known of them:",
            "",
        ]
        lines += ["```text", *map(command_of, lacking), "```", ""]
    store.export_parquet(PACKAGE / "rollouts.parquet")
    (PACKAGE / "recipes.json").write_text(json.dumps(recipes, indent=1) + "\n")
    (PACKAGE / "README.md").write_text("\n".join(lines).rstrip() + "\n")


def main() -> None:
    """Build what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "demo")
    parser.add_argument("--tasks", default=",".join(RECIPES))
    parser.add_argument("--package", action="store_true")
    arguments = parser.parse_args()
    with opened(arguments.work / ROLLOUTS) as store:
        tasks = [task for task in arguments.tasks.split(",") if task]
        if tasks:
            engine = InProcess(open_model(MODEL))
            for task in tasks:
                build(task, engine, store, arguments.work)
        if arguments.package:
            package(arguments.work, store)


if __name__ == "__main__":
    main()
