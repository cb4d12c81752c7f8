"""The page of one cot run, from its folder alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmassay.cot.predictions import read_predictions
from lmassay.reports.cot_figures import SELECTION, CotFigures, CotRun, headline, is_ood, method_of
from lmassay.reports.page.cot_audit import audit_section
from lmassay.reports.page.cot_calibration import calibration_section
from lmassay.reports.page.cot_compression import compression_section
from lmassay.reports.page.cot_examples import example_section
from lmassay.reports.page.cot_parts import (
    count_section,
    distribution_section,
    question_section,
    roc_section,
    score_section,
    transfer_section,
)
from lmassay.reports.page.cot_words import CONTROL_WORDS, FIGURE_WORDS, figure_words, place
from lmassay.reports.page.opened import OpenedRun
from lmassay.reports.page.parts import RunPage, Section
from lmassay.reports.page.words import counted, figure, status_words
from lmassay.storage.runs import COMPRESSION, PREDICTIONS


def cot_page(opened: OpenedRun) -> RunPage:
    """Everything a report says about one run.

    Raises
    ------
    LmassayError
        ``bad-run-folder``.
    """
    folder, document, record = opened.path, opened.document, opened.record
    identity = record["identity"]
    sections: list[Section] = []
    if document is not None and PREDICTIONS in opened.tables:
        run = CotRun(record, document, read_predictions(folder))
        made = (
            distribution_section(run),
            roc_section(run),
            transfer_section(run),
            question_section(run),
            calibration_section(run),
            example_section(folder, run),
        )
        sections += [section for section in made if section is not None]
    if COMPRESSION in opened.tables:
        sections.append(compression_section(folder, int(identity["settings"]["seed"])))
    if document is not None:
        plain = CotFigures(record, document)
        sections += [audit_section(folder, identity), score_section(plain), count_section(plain)]
    return RunPage(
        name=f"{identity['method']['id']} on {identity['task']['id']}",
        folder=str(folder),
        suite="cot",
        status=opened.status,
        headline="No result yet." if document is None else _headline(document),
        survives=None if document is None else document["survives_its_controls"],
        evidence=() if document is None else document["evidence"],
        sections=sections,
        signals=_signals(document),
        about=_about(opened),
        notices=[status_words(n) for n in (record.get("notices", ()) if document is None else document["notices"])],
    )


def _headline(document: Mapping[str, Any]) -> str:
    run = CotFigures({}, document)
    name = headline(run)
    said = []
    for key, e in document["scores"].items():
        split, _, of = key.partition(".")
        if of == name:
            said.append(f"{figure(e)} {place(run, split)} (n = {e['n']:,}, {counted(e['n_clusters'], 'question')})")
    return f"{method_of(run)}: {FIGURE_WORDS.get(name, name)} {'; '.join(said)}."


def _signals(document: Mapping[str, Any] | None) -> dict[str, str]:
    """Words for signals and controls of the evidence."""
    if document is None:
        return dict(CONTROL_WORDS)
    run = CotFigures({}, document)
    found = dict(CONTROL_WORDS)
    for row in document["evidence"]:
        split, _, name = str(row["signal"]).partition(".")
        if document["identity"]["task"]["kind"] == SELECTION:
            # The measure stands first there, and who chose the sentences after it.
            found[row["signal"]] = f"{figure_words(split)} of {name}"
            continue
        where = "out of distribution" if is_ood(run, split) else "in distribution"
        found[row["signal"]] = f"{figure_words(name)} {where} ({split})"
    return found


def _about(opened: OpenedRun) -> list[tuple[str, str]]:
    record = opened.record
    identity = record["identity"]
    task, method, settings = identity["task"], identity["method"], identity["settings"]
    reader = identity.get("activations", {}).get("reader")
    chosen = record.get("choices", {}).get(method["id"], {})
    plain = ", ".join(f"{k} = {v}" for k, v in chosen.items() if not isinstance(v, dict | list))
    facts = [
        ("task", f"{task['id']} ({task['kind']})"),
        ("data", ", ".join(filter(None, (f"layout {task['layout']}", task["regime"] and f"regime {task['regime']}",
                                         f"sha256 {task['sha256'][:12]}")))),
        ("validation set", str(task["validation"])),
        ("training rows", f"at most {settings['train_cap']:,}" if settings.get("train_cap") else ""),
        ("method", f"{method['id']}, sha256 {str(method['sha256'])[:12]}"),
        ("options", ", ".join(f"{k} = {v}" for k, v in (method.get("options") or {}).items())),
        ("chosen", plain),
        ("model read", str(reader or "")),
        ("controls", ", ".join(c["id"] for c in identity["controls"])),
        ("seed", str(settings["seed"])),
        ("started", str(record.get("started", ""))),
        ("finished", str(record.get("finished", ""))),
        ("versions", ", ".join(f"{name} {v}" for name, v in (record.get("packages") or {}).items())),
        ("command", str(record.get("command", ""))),
    ]  # fmt: skip
    return [(name, value) for name, value in facts if value]
