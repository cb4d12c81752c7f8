"""From a release with a canary in every hidden field, through import and store, to what a method receives."""

from __future__ import annotations

import numpy as np
import pytest
from made_release import value, write_export
from walking import reachable, said_by

from lmassay.cot.fitting import fit_and_score
from lmassay.cot.load import load_task
from lmassay.cot.published import import_published
from lmassay.cot.tasks import tasks
from lmassay.methods.method import Method

WORD, WHOLE, REAL = "canary-91f", 9_876_540, 98_765.25
TEXT_TASKS = [t.id for t in tasks() if t.release and t.release.label and "cot" not in t.release.missing]


def _hidden(field, i):
    """A canary where the schema leaves the value open; a label word or a variant is one of a few and no secret itself."""
    match field.kind:
        case "int":
            return field.values[i % len(field.values)] if field.values else WHOLE + i
        case "float":
            return REAL + i
        case "str" if field.values:
            return field.values[i % len(field.values)]
        case "str" | "text" | "thinking":
            return f"{WORD} {field.name}"
    return value(field, i, "topic")


def _records(split, release, n=12):
    records, prompts = {}, {}
    for i in range(n):
        seen = {s.field for s in release.shown if s.of == "records"}
        record = {
            f.name: value(f, i, "topic") if f.name in seen else _hidden(f, i) for f in split.fields if not f.optional
        }
        record[release.question] = f"{WORD} question {split.folder} {i // 2}"
        record[release.label] = list(release.words)[(i + i // 2) % 2]
        records[f"{WORD} file {split.folder} {i:03d}.json"] = record
        seen = {s.field for s in release.shown if s.of == "prompts"}
        prompt = {f.name: value(f, i, "topic") if f.name in seen else _hidden(f, i) for f in release.prompt_fields}
        prompt |= {k: record[k] for k in release.prompt_key}
        prompts[f"{WORD} prompt {'__'.join(str(record[k]) for k in release.prompt_key)}.json"] = prompt
    return records, prompts


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("canary")
    tables = {}
    for task in tasks():
        if task.id in TEXT_TASKS:
            for split in task.release.splits:
                if split.layout == "head":
                    records, prompts = _records(split, task.release)
                    tables[f"task{task.number}_{split.folder}"] = records
                    tables.setdefault(f"task{task.number}_prompts_{split.prompts}", {}).update(prompts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMASSAY_CACHE", str(root / "cache"))
        import_published(write_export(root / "export", tables))
        yield


class Spy(Method):
    """Keeps everything it is given."""

    id = "spy"
    chooses_on_validation = True

    def fit(self, X, y, groups, validation, seed):
        self.received = [X, y, groups, validation, seed, *X, *validation.X]

    def score(self, X):
        self.received += [X, *X]
        return np.zeros(len(X))


def _numbers(item):
    if isinstance(item, np.ndarray) and item.dtype.kind in "if":
        return item.astype(np.float64).ravel()
    return np.array([item], np.float64) if isinstance(item, int | float) and abs(item) < 1e12 else np.zeros(0)


@pytest.mark.parametrize("task_id", TEXT_TASKS)
def test_no_hidden_field_of_a_published_task_reaches_a_method(store, task_id):
    data = load_task(task_id)
    hidden = str(data["test"].hidden.rows())
    assert WORD in hidden
    spy = Spy()
    fit_and_score(spy, data, 0)
    found = list(reachable(spy.received))
    said = [text for text in map(said_by, found) if text]
    assert any("Thought" in text or "answer 1" in text for text in said)
    assert not [text[:200] for text in said if WORD in text]
    numbers = np.concatenate([_numbers(item) for item in found])
    assert not (((numbers >= WHOLE) & (numbers < WHOLE + 12)) | ((numbers >= REAL) & (numbers < REAL + 12))).any()
