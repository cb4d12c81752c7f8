"""Data, settings and a model of no size for the tests of monitors."""

from __future__ import annotations

from dataclasses import replace

from made_cot import made_data

from lmassay.cot.monitors.asking import Asking
from lmassay.cot.monitors.templates import Template
from lmassay.examples import Segment, VisibleExample

PLAIN = Template("made", 1, "binary", shown="a text", question="Does it hesitate?", meanings=("it does", "it does not"))
DISTRIBUTION = replace(PLAIN, kind="distribution")
SELECTION = replace(PLAIN, kind="selection")
ASKED = {
    "label": (PLAIN, Asking()),
    "probability": (PLAIN, Asking(confidence=True)),
    "distribution": (DISTRIBUTION, Asking()),
    "sentences": (SELECTION, Asking(m=3)),
}


def example(cot="one two", key=7, **more):
    """An example with a prompt, a chain of thought and whatever else is given."""
    kinds = {"prompt": "what is asked", "cot": cot, **more}
    segments = []
    for kind, text in kinds.items():
        if isinstance(text, str):
            segments.append(Segment(kind, text))
        else:
            segments += [Segment(kind, t, label) for label, t in text]
    return VisibleExample(key, tuple(segments))


def small_data(n=24, **more):
    """A made task of few rows."""
    return made_data(n=n, n_questions=12, **more)
