"""Data that comes with the package: tasks the bundled model carries, made by `cot generate` from our questions.

``README.md`` beside this file is its card: the commands that made it, counts, and what the audits found.
"""

from __future__ import annotations

from pathlib import Path

from lmassay.errors import LmassayError

#: What `source` is called instead of a file.
DEMO = "demo"
#: Every sample that labels came from, as `RolloutStore.export_parquet` writes them.
ROLLOUTS = "rollouts"
NOTE = "the demo's data: small, made by the bundled model with thresholds far from the published ones"
FOLDER = Path(__file__).parent


def demo_tasks() -> tuple[str, ...]:
    """Ids of the tasks there is data for."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.parquet") if path.stem != ROLLOUTS))


def demo_file(task: str) -> Path:
    """The file of a task's demo data.

    Raises
    ------
    LmassayError
        ``cot-data-missing`` for a task that the bundled model did not carry.
    """
    if task not in demo_tasks():
        raise LmassayError(
            "cot-data-missing", f"the demo data has nothing of {task}", f"it has {', '.join(demo_tasks())}"
        )
    return FOLDER / f"{task}.parquet"
