"""A user's battery file: what is read, and every fault named with its line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lmassay.errors import LmassayError
from lmassay.xray.batteries import load_battery
from lmassay.xray.battery_file import FAULTS_SHOWN, read_battery
from lmassay.xray.task import Battery

GOOD: dict[str, Any] = {
    "id": "a",
    "family": "capitals",
    "prompt": "France has",
    "options": ["Paris", "Rome"],
    "answer": 0,
}


def row(**changes: Any) -> dict[str, Any]:
    """A good row with some fields changed; a field set to None is left out."""
    return {k: v for k, v in (GOOD | changes).items() if v is not None}


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def yaml_file(path: Path, rows: list[Any]) -> Path:
    path.write_text(yaml.safe_dump(rows, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def csv_file(path: Path, rows: list[list[str]]) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    path.write_bytes(text.getvalue().encode())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(LmassayError) as caught:
        read_battery(path)
    assert caught.value.code == "bad-battery"
    line = caught.value.one_line()
    assert "\n" not in line
    assert line.isprintable()
    return line


def options_read(battery: Battery) -> list[tuple[str, ...]]:
    return [task.options for task in battery.tasks]


class TestWhatIsRead:
    def test_all_fields_arrive(self, tmp_path: Path) -> None:
        rows = [
            row(template="t", set="s", paraphrases=["In France there is "], broken_prompt="The color is "),
            row(id="b", prompt="Italy has", answer=1, template="t", set="s"),
        ]
        battery = load_battery(str(jsonl(tmp_path / "mine.jsonl", rows)))
        first = battery.tasks[0]
        assert (battery.name, first.template, first.set_id, first.broken_prompt) == ("mine", "t", "s", "The color is")
        assert [t.answer for t in battery.tasks] == [0, 1]
        assert [g.wordings for g in battery.paraphrases] == [("France has", "In France there is")]
        assert battery.paraphrases[0].options == first.options

    def test_a_file_without_paraphrases_has_no_groups(self, tmp_path: Path) -> None:
        assert read_battery(jsonl(tmp_path / "b.jsonl", [row()])).paraphrases == ()

    def test_a_task_without_a_template_is_its_own(self, tmp_path: Path) -> None:
        assert read_battery(jsonl(tmp_path / "b.jsonl", [row()])).tasks[0].template == "a"

    def test_the_three_formats_give_the_same_tasks(self, tmp_path: Path) -> None:
        rows = [row(), row(id="b", prompt="Grüße, “x” is", options=["1", "2", "3"], answer="3")]
        table = [["id", "family", "prompt", "option_0", "option_1", "option_2", "answer"]]
        table += [["a", "capitals", "France has", "Paris", "Rome", "", "0"]]
        table += [["b", "capitals", "Grüße, “x” is", "1", "2", "3", "3"]]
        read = [
            read_battery(jsonl(tmp_path / "b.jsonl", rows)),
            read_battery(yaml_file(tmp_path / "b.yaml", rows)),
            read_battery(csv_file(tmp_path / "b.csv", table)),
        ]
        assert read[0].tasks == read[1].tasks == read[2].tasks
        assert len({b.content_hash for b in read}) == 1

    def test_a_byte_order_mark_and_windows_line_ends_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "b.jsonl"
        path.write_bytes(b"\xef\xbb\xbf" + json.dumps(row()).encode() + b"\r\n\r\n")
        assert len(read_battery(path).tasks) == 1

    @pytest.mark.parametrize(
        ("options", "answer", "index"),
        [
            (["2", "1", "0"], 1, 1),  # a number is an index
            (["2", "1", "0"], "0", 2),  # a string is an option's text first
            (["x", "y", "z"], "2", 2),  # and an index only where no option reads so
            (["x", "y ", "z"], " y", 1),
        ],
    )
    def test_an_answer_is_an_index_or_an_options_text(
        self, tmp_path: Path, options: list[str], answer: int | str, index: int
    ) -> None:
        assert read_battery(jsonl(tmp_path / "b.jsonl", [row(options=options, answer=answer)])).tasks[0].answer == index

    def test_a_trailing_space_of_the_prompt_goes_and_is_flagged(self, tmp_path: Path) -> None:
        tasks = read_battery(
            jsonl(tmp_path / "b.jsonl", [row(prompt="France has \n"), row(id="b", options=["Oslo", "Paris"])])
        ).tasks
        assert [(t.prompt, t.flags) for t in tasks] == [
            ("France has", ("prompt_trailing_space",)),
            ("France has", ()),
        ]

    def test_an_option_that_begins_another_is_flagged(self, tmp_path: Path) -> None:
        tasks = read_battery(jsonl(tmp_path / "b.jsonl", [row(options=["Par", "Paris"])])).tasks
        assert tasks[0].flags == ("option_prefix_of_other",)

    def test_csv_options_stand_in_the_order_of_their_numbers(self, tmp_path: Path) -> None:
        header = ["id", "option_10", "option_9", "family", "prompt", "answer"]
        path = csv_file(tmp_path / "b.csv", [header, ["a", "last", "first", "f", "p", "0"]])
        assert options_read(read_battery(path)) == [("first", "last")]

    def test_csv_options_may_be_a_json_list(self, tmp_path: Path) -> None:
        header = ["id", "family", "prompt", "options", "answer", "paraphrases"]
        path = csv_file(tmp_path / "b.csv", [header, ["a", "f", "p", '["x, y", "z"]', "z", '["q"]']])
        battery = read_battery(path)
        assert options_read(battery) == [("x, y", "z")]
        assert battery.paraphrases[0].wordings == ("p", "q")

    def test_csv_cells_left_empty_at_the_end_are_no_options(self, tmp_path: Path) -> None:
        header = ["id", "family", "prompt", "option_0", "option_1", "option_2", "option_3", "answer"]
        good = csv_file(tmp_path / "good.csv", [header, ["a", "f", "p", "x", "y", "", "", "0"]])
        bad = csv_file(tmp_path / "bad.csv", [header, ["a", "f", "p", "x", "", "y", "", "0"]])
        assert options_read(read_battery(good)) == [("x", "y")]
        assert "line 2: option 1 is empty" in refusal(bad)


FAULTS = [
    (row(family=None), "family: field required"),
    (row(options=None), "options: field required"),
    (row(answer=None), "answer: field required"),
    (row(prompt=None), "prompt: field required"),
    (row(id=None), "id: field required"),
    (row(id=""), "id: "),
    (row(colour="red"), "colour: extra inputs are not permitted"),
    (row(prompt="  \n"), "the prompt is empty"),
    (row(options=["Paris"]), "has 1 option, at least 2 are needed"),
    (row(options=[]), "has 0 options"),
    (row(options=["Paris", " "]), "option 1 is empty"),
    (row(options=["Paris", "Paris"]), "option 'Paris' stands twice"),
    (row(options=["Paris", " Paris "]), "option 'Paris' stands twice"),
    (row(answer="Oslo"), "the answer is not among the options: 'Oslo'"),
    (row(answer=2), "the answer is not among the options: 2"),
    (row(answer=-1), "the answer is not among the options: -1"),
    (row(answer="9" * 5000), "the answer is not among the options: '999"),
    (row(answer=True), "answer: "),
    (row(answer=0.0), "answer: "),
    (row(options=["Paris", 2]), "options.1: "),
    (row(options="Paris"), "options: "),
    (row(prompt=3), "prompt: "),
    (row(prompt="a\0b"), "holds a NUL or a lone surrogate"),
    (row(options=["\ud800", "b"]), "holds a NUL or a lone surrogate"),
    (row(paraphrases=[" "]), "a paraphrase is empty"),
    (row(broken_prompt=" "), "the broken_prompt is empty"),
    ([1], "input should be a valid dictionary"),
]
HEAD = b"id,family,prompt,option_0,option_1,answer\n"


class TestFaults:
    @pytest.mark.parametrize(("bad", "said"), FAULTS)
    @pytest.mark.parametrize("kind", ["jsonl", "yaml"])
    def test_a_bad_row_is_named_by_its_line(self, tmp_path: Path, kind: str, bad: Any, said: str) -> None:
        good = row(id="good")
        if kind == "jsonl":
            path = jsonl(tmp_path / "b.jsonl", [good, bad])
            line = 2
        else:
            path = tmp_path / "b.yml"
            # JSON is YAML, and its escapes can say what a YAML reader refuses raw.
            path.write_text(f"- {json.dumps(good)}\n\n- {json.dumps(bad)}\n", encoding="utf-8")
            line = 3
        assert (
            f"b.{path.suffix[1:]}: line {line}: {said}" in refusal(path)
            or said in refusal(path).split(f"line {line}: ")[1]
        )

    def test_all_faults_are_told_at_once(self, tmp_path: Path) -> None:
        bad = [row(prompt=""), row(id="b", options=["x"], answer="y"), row(id="c", family=None, answer=None)]
        told = refusal(jsonl(tmp_path / "b.jsonl", [*bad, row(id="d"), row(id="d", options=["x", "x"])]))
        for said in (
            "line 1: the prompt is empty",
            "line 2: has 1 option",
            "line 2: the answer is not among the options: 'y'",
            "line 3: family: field required",
            "line 3: answer: field required",
            "line 5: option 'x' stands twice",
            "line 5: id 'd' is that of line 4 too",
        ):
            assert said in told
        assert "line 4: " not in told

    def test_a_long_list_of_faults_is_counted(self, tmp_path: Path) -> None:
        told = refusal(jsonl(tmp_path / "b.jsonl", [row(id=str(k), prompt="") for k in range(FAULTS_SHOWN + 7)]))
        assert told.count("the prompt is empty") == FAULTS_SHOWN
        assert "; and 7 more" in told

    def test_a_copy_under_another_id_and_template_is_a_fault(self, tmp_path: Path) -> None:
        rows = [row(), row(id="b", prompt="Italy has"), row(id="c", template="other", options=["Rome", "Paris "])]
        assert "line 3: asks what line 1 asks" in refusal(jsonl(tmp_path / "b.jsonl", rows))

    def test_a_long_cell_is_not_quoted_whole(self, tmp_path: Path) -> None:
        assert len(refusal(jsonl(tmp_path / "b.jsonl", [row(answer="x" * 100_000)]))) < 500

    def test_control_characters_of_a_cell_are_made_visible(self, tmp_path: Path) -> None:
        told = refusal(jsonl(tmp_path / "b.jsonl", [row(answer="\x1b[31mred\nline")]))
        assert "\\x1b[31mred\\nline" in told

    @pytest.mark.parametrize(
        ("name", "content", "said"),
        [
            ("b.jsonl", b"", "holds no task"),
            ("b.yaml", b"[]", "holds no task"),
            ("b.csv", b"", "holds no task"),
            ("b.csv", b"id,family,prompt,options,answer\n", "holds no task"),
            ("b.yaml", b"", "a YAML battery is a list of tasks"),
            ("b.yaml", b"id: a", "a YAML battery is a list of tasks"),
            ("b.jsonl", b"\n{not json}\n", "line 2: not JSON"),
            ("b.jsonl", b'{"id": "a"', "line 1: not JSON"),
            ("b.jsonl", b"[" * 100_000, "line 1: not JSON"),
            ("b.jsonl", b'{"answer": ' + b"9" * 5000 + b"}", "line 1: not JSON"),
            ("b.yaml", b"- {id: [", "not YAML"),
            ("b.yaml", b"[" * 5000, "not YAML"),
            ("b.yaml", b"- id: 2024-13-45", "not YAML"),
            ("b.yaml", b"- !!python/object/apply:os.getcwd []", "not YAML"),
            ("b.jsonl", b"\xff\xfe{\x00", "cannot be read as UTF-8"),
            ("b.csv", b"id,id\na,b\n", "line 1: column 'id' stands twice"),
            ("b.csv", b"id,family\na\n", "line 2: too few cells"),
            ("b.csv", b"id,family\na,b,c\n", "line 2: too many cells"),
            ("b.csv", b"id\n" + b"x" * 200_000, "line 2: not CSV"),
            ("b.csv", b"id,family,prompt,options,answer\na,f,p,not json,0\n", "line 2: options: "),
            ("b.csv", b"id,family,prompt,options,answer\na,f,p,3,0\n", "line 2: options: "),
            ("b.csv", b"id,family,prompt,option_x,answer\na,f,p,3,0\n", "line 2: option_x: extra"),
            ("b.csv", HEAD + b'\na,f,"p\nq",1,1,0\nb,f,,1,2,0\n', "line 5: the prompt"),
            ("b.csv", HEAD + b'\na,f,"p\nq",1,1,0\n', "line 3: option '1' stands twice"),
            ("b.csv", HEAD + b"a\0,f,p,1,2,0\n", "holds a NUL"),
        ],
    )  # fmt: skip
    def test_what_is_no_table_of_tasks_is_refused(self, tmp_path: Path, name: str, content: bytes, said: str) -> None:
        (tmp_path / name).write_bytes(content)
        assert said in refusal(tmp_path / name)

    def test_a_missing_file_is_an_unknown_battery(self, tmp_path: Path) -> None:
        with pytest.raises(LmassayError) as caught:
            load_battery(str(tmp_path / "none.jsonl"))
        assert caught.value.code == "unknown-battery"

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "b.csv").mkdir()
        refusal(tmp_path / "b.csv")


def members(**second: Any) -> list[dict[str, Any]]:
    return [row(template="t", set="s"), row(id="b", prompt="Italy has", answer=1, template="t", set="s") | second]


class TestSets:
    def test_a_set_shares_options_in_any_order(self, tmp_path: Path) -> None:
        rows = members(options=["Rome", "Paris"], answer="Rome")
        assert len(read_battery(jsonl(tmp_path / "b.jsonl", rows)).tasks) == 2

    @pytest.mark.parametrize(
        "rows",
        [
            members()[:1],  # an option that is nobody's answer
            members(answer=0),  # one that is the answer twice
            members(options=["Paris", "Oslo"]),  # other options
            members(template="u"),  # another template
            [*members(), row(id="c", prompt="Spain has", template="t", set="s")],
        ],
    )
    def test_a_set_that_is_not_counterbalanced_is_a_fault(self, tmp_path: Path, rows: list[Any]) -> None:
        assert "line 1: set 's' is not counterbalanced" in refusal(jsonl(tmp_path / "b.jsonl", rows))
