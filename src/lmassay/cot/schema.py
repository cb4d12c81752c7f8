"""What a record of the published files must look like, checked column by column.

A worker process imports this module, so it needs neither numpy nor polars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

#: What a record holds where a key is absent; JSON's null is not one of the published values.
ABSENT = None


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a record.

    Attributes
    ----------
    name : str
    kind : str
        ``text`` (long, kept as UTF-8 beside the table), ``str``, ``int``, ``float``, ``bool``, ``messages`` (list of
        role and content), ``thinking`` (a string, or a list of one block of text), ``options`` (letter to text),
        ``strings``, ``ints``, ``distribution`` (letter to number), ``summaries`` (task 8's list of boundaries).
    optional : bool
        Whether the key may be absent. Absent is null in the store, and not 0.
    values : tuple or None
        The only values it may have.
    """

    name: str
    kind: str
    optional: bool = False
    values: tuple[str | int, ...] | None = None

    @property
    def is_text(self) -> bool:
        """Whether the column is kept as UTF-8 beside the table."""
        return self.kind in ("text", "thinking")


class MisfitError(Exception):
    """One record that does not fit, and why."""


def columns(records: Sequence[Any], fields: Sequence[Field]) -> tuple[dict[str, list[Any]], dict[int, str]]:
    """Records as columns of the store's types, and which records do not fit.

    Returns
    -------
    columns : dict of str to list
        (n_fitting,) values of each field, in order.
    misfits : dict of int to str
        Position of a record that does not fit, and why.
    """
    misfits = _misfitting_keys(records, fields)
    fitting = [r for i, r in enumerate(records) if i not in misfits] if misfits else records
    try:
        return _converted(fitting, fields), misfits
    except MisfitError:
        # Rare: find the records at fault one by one.
        for i, record in enumerate(records):
            if i not in misfits:
                try:
                    _converted([record], fields)
                except MisfitError as why:
                    misfits[i] = str(why)
        return _converted([r for i, r in enumerate(records) if i not in misfits], fields), misfits


def _misfitting_keys(records: Sequence[Any], fields: Sequence[Field]) -> dict[int, str]:
    names = {f.name for f in fields}
    required = {f.name for f in fields if not f.optional}
    misfits: dict[int, str] = {}
    if set(map(type, records)) <= {dict} and all(required <= set(shape) <= names for shape in set(map(tuple, records))):
        return misfits
    for i, record in enumerate(records):
        if type(record) is not dict:
            misfits[i] = "not a JSON object"
        elif record.keys() != names and not required <= record.keys() <= names:
            missing = sorted(required - record.keys())
            misfits[i] = (
                f"no key {missing[0]!r}" if missing else f"unknown key {min(map(str, record.keys() - names))!r}"
            )
    return misfits


def _converted(records: Sequence[dict[str, Any]], fields: Sequence[Field]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for field in fields:
        if field.optional:
            values = [r.get(field.name) for r in records]
            if any(v is None and field.name in r for v, r in zip(values, records, strict=True)):
                raise MisfitError(f"{field.name}: null")
        else:
            values = list(map(itemgetter(field.name), records))
        found[field.name] = _column(field, values)
    return found


def _column(field: Field, values: list[Any]) -> list[Any]:
    types = set(map(type, values))
    if field.optional:
        types.discard(type(None))
    allowed = _TYPES[field.kind]
    if not types <= allowed:
        raise MisfitError(f"{field.name}: {min(t.__name__ for t in types - allowed)} where {field.kind} is expected")
    if field.values is not None:
        strange = {v for v in values if v is not None}.difference(field.values)
        if strange:
            raise MisfitError(
                f"{field.name}: {min(map(repr, strange))[:80]} is none of {', '.join(map(str, field.values))}"
            )
    if field.kind == "int":
        whole = [v for v in values if v is not None] if field.optional else values
        if whole and not (min(whole) >= -(2**63) and max(whole) < 2**63):
            raise MisfitError(f"{field.name}: a number beyond 64 bits")
    convert = _CONVERT.get(field.kind)
    return values if convert is None else [None if v is None else convert(field.name, v) for v in values]


def _number(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise MisfitError(f"{name}: {value} is no finite number")
    return float(value)


def _thinking(name: str, value: str | list[Any]) -> str:
    """The text of a reasoning trace, which task 5 gives as a string or as a list of one block."""
    if isinstance(value, str):
        return value
    if len(value) == 1 and isinstance(value[0], dict) and isinstance(text := value[0].get("text"), str):
        return text
    raise MisfitError(f"{name}: neither a string nor a list of one block of text")


def _messages(name: str, value: list[Any]) -> list[dict[str, str]]:
    if all(
        type(m) is dict and m.keys() == {"role", "content"} and all(type(v) is str for v in m.values()) for m in value
    ):
        return [{"label": m["role"], "text": m["content"]} for m in value]
    raise MisfitError(f"{name}: a message is not a role and a content")


def _options(name: str, value: dict[str, Any]) -> list[dict[str, str]]:
    if all(type(v) is str for v in value.values()):
        return [{"label": k, "text": v} for k, v in value.items()]
    raise MisfitError(f"{name}: an option is not a string")


def _list_of(kind: type) -> Callable[[str, list[Any]], list[Any]]:
    def convert(name: str, value: list[Any]) -> list[Any]:
        if all(type(v) is kind for v in value):
            return value
        raise MisfitError(f"{name}: not a list of {kind.__name__}")

    return convert


def _distribution(name: str, value: dict[str, Any]) -> list[dict[str, Any]]:
    if all(type(v) in (int, float) and math.isfinite(v) and v >= 0 for v in value.values()):
        return [{"key": k, "value": float(v)} for k, v in value.items()]
    raise MisfitError(f"{name}: a value is no number from 0 up")


_SUMMARY = {"sentence_idx", "partial_cot_length", "total_forces", "valid_answers"}


def _summaries(name: str, value: list[Any]) -> list[dict[str, Any]]:
    made = []
    for entry in value:
        if type(entry) is not dict or entry.keys() != _SUMMARY | {
            "answer_distribution",
            "answer_counts",
            "most_common",
        }:
            raise MisfitError(f"{name}: a boundary has other keys than published")
        if any(type(entry[k]) is not int for k in _SUMMARY) or type(entry["most_common"]) is not str:
            raise MisfitError(f"{name}: a boundary has values of another type")
        if type(entry["answer_distribution"]) is not dict or type(entry["answer_counts"]) is not dict:
            raise MisfitError(f"{name}: a boundary without a distribution")
        both = {k: _distribution(f"{name}.{k}", entry[k]) for k in ("answer_distribution", "answer_counts")}
        made.append({**entry, **both})
    return made


_TYPES: dict[str, set[type]] = {
    "text": {str}, "str": {str}, "int": {int}, "float": {int, float}, "bool": {bool}, "messages": {list},
    "thinking": {str, list}, "options": {dict}, "strings": {list}, "ints": {list}, "distribution": {dict},
    "summaries": {list},
}  # fmt: skip

_CONVERT: dict[str, Callable[[str, Any], Any]] = {
    "float": _number, "thinking": _thinking, "messages": _messages, "options": _options,
    "strings": _list_of(str), "ints": _list_of(int), "distribution": _distribution, "summaries": _summaries,
}  # fmt: skip
