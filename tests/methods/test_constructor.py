"""Options of a method from a command line: typed by its constructor, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmassay.errors import LmassayError
from lmassay.methods.attention import Attention
from lmassay.methods.constructor import known_options, parsed_options, plain_options
from lmassay.methods.linear import Linear
from lmassay.methods.tfidf import Tfidf


class Many:
    id = "many"

    def __init__(
        self,
        kind: str = "binary",
        n: int = 1,
        rate: float = 0.5,
        on: bool = False,
        where: Path | None = None,
        name: str = "",
        several: tuple[float, ...] = (),
        either: int | str = 0,
        untyped=None,
    ) -> None: ...


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("n=3", 3),
        ("rate=1e-3", 1e-3),
        ("on=true", True),
        ("on=No", False),
        ("where=/some/folder", Path("/some/folder")),
        ("where=none", None),
        ("name=a=b", "a=b"),
        ("name=", ""),
        ("several=1, 2.5", (1.0, 2.5)),
        ("several=", ()),
        ("either=7", 7),
        ("either=last", "last"),
        ("untyped=8", "8"),
    ],
)
def test_a_value_has_the_type_of_the_signature(word, value):
    found = parsed_options(Many, [word])[word.partition("=")[0]]
    assert found == value
    assert type(found) is type(value)


def test_probes_take_their_options():
    assert parsed_options(Linear, ["blocks=8,16", "poolings=mean"]) == {"blocks": (8, 16), "poolings": ("mean",)}
    assert parsed_options(Attention, ["heads=4", "rate=0.01"]) == {"heads": 4, "rate": 0.01}
    assert known_options(Tfidf) == {}


@pytest.mark.parametrize(
    ("cls", "words", "said"),
    [
        (Many, ["n"], "option 'n' is not NAME=VALUE"),
        (Many, ["=3"], "option '=3' is not NAME=VALUE"),
        (Many, ["n=3", "n=4"], "option n stands twice"),
        (Many, ["n=three"], "option n='three' of method many is not a whole number"),
        (Many, ["rate=nan"], "is not a finite number"),
        (Many, ["on=perhaps"], "is not true or false"),
        (Many, ["several=1,x"], "is not a list with commas, each a finite number"),
        (Linear, ["block=8"], "method linear has no option 'block' — did you mean blocks?"),
        (Many, ["kind=binary"], "method many has no option 'kind'"),
        (Tfidf, ["n=3"], "method tfidf has no option 'n' — it has none"),
    ],
)
def test_what_does_not_fit_is_named(cls, words, said):
    with pytest.raises(LmassayError) as caught:
        parsed_options(cls, words)
    assert said in str(caught.value)


def test_options_are_recorded_as_json_has_them():
    assert plain_options({"b": (1, 2), "a": Path("x/y"), "c": ((1,), "z")}) == {
        "a": "x/y",
        "b": [1, 2],
        "c": [[1], "z"],
    }
