"""A user's battery: JSONL, YAML or CSV, with every fault of the file reported at once."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lmassay.errors import LmassayError
from lmassay.xray.batteries.balanced import prefix_flag
from lmassay.xray.task import Battery, ParaphraseGroup, Task

#: Faults named one by one; the rest is counted.
FAULTS_SHOWN = 20
#: Characters of one fault, which may quote a cell of any length.
FAULT_LENGTH = 200
#: An index of more digits than this is none of ours, and may be more than `int` reads.
INDEX_DIGITS = 9
_OPTION = re.compile(r"option_[0-9]{1,9}")


class Row(BaseModel):
    """One task as a user writes it.

    ``answer`` is the index of the right option (counted from 0), or its text: a string is looked up among the options
    first, so ``"1"`` means the option *1* where there is one, and the second option where there is none.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(min_length=1)
    family: str = Field(min_length=1)
    prompt: str
    options: list[str]
    answer: int | str
    template: str | None = None
    set: str | None = None
    paraphrases: list[str] = Field(default_factory=list)
    broken_prompt: str | None = None


def read_battery(path: Path) -> Battery:
    """Read and check a battery file.

    A CSV has one row per task; its options stand in columns ``option_0``, ``option_1``, … in the order of their numbers
    (empty cells at the end are no options, an empty cell before a filled one is a fault), or in one column ``options``
    as a JSON list.

    Raises
    ------
    LmassayError
        ``unknown-battery`` when there is no such file, ``bad-battery`` with every fault and its line.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise LmassayError("unknown-battery", f"no battery file {path}", "check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise LmassayError("bad-battery", f"{path} cannot be read as UTF-8 text: {error}", "save it as UTF-8") from None
    faults: list[str] = []
    rows: list[tuple[int, Row]] = []
    for line, raw in _raw_rows(path, text, faults):
        try:
            rows.append((line, Row.model_validate(raw)))
        except ValidationError as error:
            faults += [f"line {line}: {_where(e['loc'])}{e['msg'].lower()}" for e in error.errors()]
    tasks = _tasks(rows, faults)
    if not rows and not faults:
        faults.append("the file holds no task")
    if faults:
        shown = "; ".join(f if len(f) <= FAULT_LENGTH else f"{f[:FAULT_LENGTH]}…" for f in faults[:FAULTS_SHOWN])
        more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        raise LmassayError("bad-battery", f"{path.name}: {shown}{more}", "mend the rows; nothing was run")
    return Battery(path.stem, "file", tuple(tasks), tuple(_groups(rows, tasks)))


def _where(location: tuple[int | str, ...]) -> str:
    names = [str(part) for part in location if not (isinstance(part, str) and part in ("int", "str"))]
    return f"{'.'.join(names)}: " if names else ""


def _raw_rows(path: Path, text: str, faults: list[str]) -> Iterator[tuple[int, Any]]:
    """(line number, row as read); what cannot be parsed becomes a fault."""
    kind = path.suffix.lower()
    if kind == ".csv":
        yield from _csv_rows(text, faults)
    elif kind == ".jsonl":
        for line, content in enumerate(text.split("\n"), 1):
            if content.strip():
                try:
                    yield line, json.loads(content)
                except (ValueError, RecursionError) as error:
                    faults.append(f"line {line}: not JSON ({getattr(error, 'msg', error)})")
    else:
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            values = yaml.safe_load(text)
        # A date such as 2024-13-45 and a number of too many digits fail in the constructor, not in the parser.
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            faults.append(f"not YAML: {' '.join(str(error).split())}")
            return
        if not isinstance(values, list) or not isinstance(node, yaml.SequenceNode):
            faults.append("line 1: a YAML battery is a list of tasks")
            return
        for child, value in zip(node.value, values, strict=True):
            yield child.start_mark.line + 1, value


def _csv_rows(text: str, faults: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    end = 0
    header: list[str] | None = None
    columns: list[str] = []
    while True:
        # A quoted cell may hold line breaks: a row is named by the line it starts on.
        line = end + 1
        try:
            values = next(reader, None)
        except csv.Error as error:
            faults.append(f"line {line}: not CSV ({error})")
            return
        end = reader.line_num
        if values is None:
            return
        if not values:
            continue
        if header is None:
            header = values
            faults += [f"line {line}: column {c!r} stands twice" for c in dict.fromkeys(header) if header.count(c) > 1]
            columns = sorted((c for c in header if _OPTION.fullmatch(c)), key=lambda c: int(c.removeprefix("option_")))
            continue
        if len(values) != len(header):
            faults.append(f"line {line}: too {'many' if len(values) > len(header) else 'few'} cells")
            continue
        cells = dict(zip(header, values, strict=True))
        row: dict[str, Any] = {k: v for k, v in cells.items() if k not in columns and v != ""}
        row.setdefault("prompt", cells.get("prompt", ""))
        if columns:
            options = [cells[c] for c in columns]
            while options and options[-1] == "":
                options.pop()
            row["options"] = options
        for listed in ("options", "paraphrases"):
            if isinstance(row.get(listed), str):
                try:
                    row[listed] = json.loads(row[listed])
                except (ValueError, RecursionError):
                    # Left as it is, it fails the row's own check as no list.
                    continue
        yield line, row


def _tasks(rows: Iterable[tuple[int, Row]], faults: list[str]) -> list[Task]:
    tasks: list[Task] = []
    first_line: dict[str, int] = {}
    sets: dict[str, list[tuple[int, Task]]] = defaultdict(list)
    asked: dict[tuple[str, frozenset[str]], int] = {}
    for line, row in rows:
        problems = list(_problems(row))
        if first_line.setdefault(row.id, line) != line:
            problems.append(f"id {row.id!r} is that of line {first_line[row.id]} too")
        same = asked.setdefault((" ".join(row.prompt.split()), frozenset(o.strip() for o in row.options)), line)
        if same != line and not problems:
            # A copy is no second observation: it would only narrow every interval.
            problems.append(f"asks what line {same} asks, with the same options")
        if problems:
            faults += [f"line {line}: {problem}" for problem in problems]
            continue
        options = tuple(option.strip() for option in row.options)
        prompt = row.prompt.rstrip()
        flags = (("prompt_trailing_space",) if prompt != row.prompt else ()) + prefix_flag(options)
        task = Task(
            id=row.id,
            family=row.family,
            prompt=prompt,
            options=options,
            answer=_answer(row, options),
            template=row.template or row.id,
            set_id=row.set,
            broken_prompt=row.broken_prompt.rstrip() if row.broken_prompt else None,
            flags=flags,
        )
        tasks.append(task)
        if row.set is not None:
            sets[row.set].append((line, task))
    for name, members in sets.items():
        menus = {frozenset(task.options) for _, task in members}
        answers = {task.options[task.answer] for _, task in members}
        whole = len(menus) == 1 and len(answers) == len(members) == len(next(iter(menus)))
        if not whole or len({task.template for _, task in members}) > 1:
            faults.append(
                f"line {members[0][0]}: set {name!r} is not counterbalanced (tasks of one template that share their"
                " options, each option the answer of exactly one)"
            )
    return tasks


def _problems(row: Row) -> Iterator[str]:
    texts = [row.prompt, row.id, row.family, *row.options, *row.paraphrases, row.broken_prompt or ""]
    if any("\0" in text or not _encodable(text) for text in texts):
        yield "holds a NUL or a lone surrogate"
        return
    options = [option.strip() for option in row.options]
    if not row.prompt.strip():
        yield "the prompt is empty"
    if len(options) < 2:
        yield f"has {len(options)} option{'s' * (len(options) != 1)}, at least 2 are needed"
    if "" in options:
        yield f"option {options.index('')} is empty"
    repeated = sorted({option for option in options if options.count(option) > 1 and option})
    if repeated:
        yield f"option {repeated[0]!r} stands twice (white space around options does not count)"
    elif _answer(row, tuple(options)) < 0:
        yield f"the answer is not among the options: {row.answer!r}"
    if any(not wording.strip() for wording in row.paraphrases):
        yield "a paraphrase is empty"
    if row.broken_prompt is not None and not row.broken_prompt.strip():
        yield "the broken_prompt is empty"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _answer(row: Row, options: tuple[str, ...]) -> int:
    """Index of the right option, or -1."""
    if isinstance(row.answer, str):
        if row.answer.strip() in options:
            return options.index(row.answer.strip())
        if not (row.answer.isascii() and row.answer.isdecimal() and len(row.answer) <= INDEX_DIGITS):
            return -1
    index = int(row.answer)
    return index if 0 <= index < len(options) else -1


def _groups(rows: Iterable[tuple[int, Row]], tasks: Iterable[Task]) -> Iterator[ParaphraseGroup]:
    wordings = {row.id: row.paraphrases for _, row in rows}
    for task in tasks:
        if wordings[task.id]:
            own = (task.prompt, *(wording.rstrip() for wording in wordings[task.id]))
            yield ParaphraseGroup(task.id, task.family, task.id, own, task.options, task.answer)
