"""What sampling says of its progress."""

from __future__ import annotations

from lmassay.cli import sampling_progress
from lmassay.cli.sampling_progress import shown_pace, words
from lmassay.models.sampling import Pace


def test_tokens_a_second_and_the_time_left_are_told():
    assert words("rollouts", Pace(10, 50, 1800, 10.0)) == "rollouts: 10 of 50, 180 tokens/s, 0:40 left"
    assert words("rollouts", Pace(1, 100, 5, 5.0)) == "rollouts: 1 of 100, 1 tokens/s, 8:15 left"
    assert words("rollouts", Pace(0, 50, 0, 0.0)) == "rollouts: 0 of 50, 0 tokens/s"


def test_off_a_terminal_a_line_now_and_then_and_one_at_the_end(capsys, monkeypatch):
    monkeypatch.setattr(sampling_progress, "EVERY", 1e9)
    with shown_pace("rollouts") as progress:
        for done in range(4):
            progress(Pace(done, 3, 10 * done, 1.0))
    assert capsys.readouterr().err == "rollouts: 3 of 3, 30 tokens/s, 0:00 left\n"
