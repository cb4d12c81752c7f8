"""Shares: every item belongs to exactly one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmassay.errors import LmassayError
from lmassay.executors.local import Local, Opened
from lmassay.executors.share import Share, parse_share


@given(st.integers(0, 50), st.integers(1, 12))
def test_every_item_belongs_to_one_share(n, of):
    shares = [parse_share(f"{i}/{of}").taken(range(n)) for i in range(1, of + 1)]
    assert sorted(item for share in shares for item in share) == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("text", ["", "3", "0/3", "4/3", "1/0", "-1/3", "a/b", "1/3/5", "1.5/3"])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(LmassayError, match="counted from 1") as refused:
        parse_share(text)
    assert refused.value.code == "bad-request"


def test_a_share_is_written_as_it_is_read():
    assert str(parse_share(" 2/8 ")) == "2/8"
    assert parse_share("2/8") == Share(2, 8)


def test_a_job_with_nothing_to_do_is_not_opened():
    class Never:
        def open(self):
            raise AssertionError

    assert list(Local().run(Never(), [])) == []


def test_results_come_with_their_numbers_in_order():
    class Squares:
        def run(self, item):
            return item**2

    assert list(Local().run(Opened(Squares()), [3, 1, 2])) == [(3, 9), (1, 1), (2, 4)]
