"""The phase from residuals to Evidence: planted signals, named gaps, and a model end to end."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

from lmassay.evidence import judged
from lmassay.models.trace import Batch, trace
from lmassay.models.tree import Continuations
from lmassay.storage.parts import Parts
from lmassay.xray import geometry
from lmassay.xray.geometry_table import TITLES
from lmassay.xray.measured import Decided
from lmassay.xray.options import PromptStyle
from lmassay.xray.phase import Measuring
from lmassay.xray.plan import Item, PlannedItem, items_of, plan_run
from lmassay.xray.scored import PARAPHRASE, REAL
from lmassay.xray.task import Battery, ParaphraseGroup, Task

DEPTHS = ("embed", "block.0", "block.1", "block.2")
LOGIC, COMPUTE = "theorem_pattern", "arithmetic_transform"
NOTHING_DECIDED = Decided((), {}, {})


def _planned(number, task_id, family, template, prompt, variant=REAL, set_id=None):
    own = Continuations((number,), ((1,), (2,)))
    item = Item(variant, task_id, family, template, set_id, prompt, ("a", "b"), 0)
    return PlannedItem(item, own, own, frozenset(), 1)


def _tasks(n_templates=24, per_template=4, prompt=lambda logic, rng: " ".join(rng.choice(list("abcdefgh"), 6))):
    rng = np.random.default_rng(0)
    return [
        _planned(
            t * per_template + k,
            f"task {t:02d}/{k}",
            LOGIC if t % 2 else COMPUTE,
            f"template {t}",
            prompt(t % 2, rng),
        )
        for t in range(n_templates)
        for k in range(per_template)
    ]


def _states(items, depth, d=24, planted=2, strength=6.0):
    """Noise for each context and, at one depth, a direction that tells the groups apart."""
    found = []
    for planned in items:
        rng = np.random.default_rng([planned.own.context[0], depth])
        state = 1 + rng.normal(size=d)
        if depth == planted:
            state[0] += strength * (planned.item.family == LOGIC)
        found.append(state)
    return np.stack(found)


def _table(items, states=_states, seed=0):
    by_context = {p.own.context: p for p in items}
    return geometry.tabulate(
        items, DEPTHS, lambda depth, contexts: states([by_context[c] for c in contexts], depth), seed
    )


def _scores(items, states=_states, seed=0):
    return geometry.summarise(_table(items, states, seed), NOTHING_DECIDED, seed)


def _verdicts(found):
    return {(r.signal, r.control): r.verdict for r in judged(found.evidence)}


def test_a_class_readable_at_one_depth_and_not_from_the_words_survives_all_its_controls():
    items = _tasks()
    table = _table(items)
    found = geometry.summarise(table, NOTHING_DECIDED, 0)
    probe = {control: v for (signal, control), v in _verdicts(found).items() if signal == "geometry_probe"}
    assert probe == {"shuffled_label": "survives", "tfidf": "survives", "majority_class": "survives"}
    assert found.scores["geometry_probe"].value > 0.95
    assert found.scores["geometry_tfidf"].value < 0.65
    assert found.scores["geometry_probe_embed"].value < 0.65
    chosen = table.filter(table["measure"] == "probe_nested")["depth"]
    assert set(chosen) == {"block.1"}


def test_a_class_the_words_give_away_does_not_survive():
    items = _tasks(prompt=lambda logic, rng: f"{rng.choice(list('abc'))} {'implies' if logic else 'plus'} x")
    found = _scores(items)
    assert found.scores["geometry_probe"].value > 0.95
    assert found.scores["geometry_tfidf"].value == 1
    assert _verdicts(found)["geometry_probe", "tfidf"] == "fails"
    assert _verdicts(found)["geometry_probe", "shuffled_label"] == "survives"


def test_noise_at_every_depth_does_not_survive_though_its_best_depth_looks_better():
    found = _scores(_tasks(), lambda items, depth: _states(items, depth, planted=None))
    assert _verdicts(found)["geometry_probe", "majority_class"] != "survives"
    assert _verdicts(found)["geometry_clustering_gap", "shuffled_family"] != "survives"
    assert abs(found.scores["geometry_probe"].value - 0.5) < 0.15


def test_templates_alone_pass_for_a_class_on_the_single_split_and_not_on_held_out_ones():
    def states(items, depth):
        return np.stack(
            [
                np.random.default_rng([int(p.item.template.split()[1]), depth]).normal(size=48)
                + 0.01 * np.random.default_rng([*p.own.context, depth]).normal(size=48)
                for p in items
            ]
        )

    scores = _scores(_tasks(), states).scores
    assert scores["geometry_probe_single"].value > 0.9
    assert scores["geometry_probe_single_shuffled"].value > 0.9
    assert scores["geometry_probe"].value < 0.75


def test_a_planted_class_clusters_and_its_depth_is_named():
    found = _scores(_tasks())
    assert _verdicts(found)["geometry_clustering_gap", "shuffled_family"] == "survives"
    assert found.scores["geometry_clustering_depth"].value == 2
    assert found.scores["geometry_probe_separable"].status in ("ok", "undefined: no depth parts them all")


def _with_groups(items, n_groups=12, wordings=5, start=10_000, near=3.0):
    """Wordings that share a direction of their group's."""
    groups = [
        _planned(start + g * 100 + k, f"g{g:02d}/{k}", LOGIC if g % 2 else COMPUTE, f"g{g:02d}", "w", PARAPHRASE)
        for g in range(n_groups)
        for k in range(wordings)
    ]

    def states(chosen, depth):
        found = _states(chosen, depth, planted=None)
        for row, planned in zip(found, chosen, strict=True):
            if planned.item.variant == PARAPHRASE:
                row += near * np.random.default_rng([planned.own.context[0] // 100, depth, 1]).normal(size=len(row))
        return found

    return [*items, *groups], states


def test_wordings_of_one_question_are_held_against_random_groups_of_other_prompts():
    items, states = _with_groups(_tasks())
    found = _scores(items, states)
    verdicts = _verdicts(found)
    assert verdicts["geometry_consistency_centred", "random_group"] == "survives"
    assert verdicts["geometry_consistency_centred", "same_family"] == "survives"
    unlike, states = _with_groups(_tasks(), near=0.0)
    assert _verdicts(_scores(unlike, states))["geometry_consistency_centred", "random_group"] == "fails"


def test_a_direction_common_to_all_prompts_raises_the_raw_cosine_only():
    items, states = _with_groups(_tasks(), near=0.0)
    scores = _scores(items, lambda chosen, depth: states(chosen, depth) + 20).scores
    assert scores["geometry_consistency"].value > 0.95
    assert scores["geometry_consistency_random"].value > 0.95
    assert abs(scores["geometry_consistency_centred"].value) < 0.1


def test_every_figure_has_n_and_a_title_and_names_why_it_has_no_interval():
    items, states = _with_groups(_tasks())
    scores = _scores(items, states).scores
    assert list(scores) == list(TITLES)
    for name, e in scores.items():
        assert e.title == TITLES[name]
        assert e.n > 0
        exact = name.endswith(("_depth", "_separable"))
        assert exact or e.status != "ok" or (e.low - 1e-12 <= e.value <= e.high + 1e-12), name


def test_order_of_tasks_and_groups_changes_no_cell():
    items, states = _with_groups(_tasks(12, 3), n_groups=3)
    order = np.random.default_rng(0).permutation(len(items))
    here, there = _table(items, states), _table([items[i] for i in order], states)
    assert here.drop("value").equals(there.drop("value"))
    np.testing.assert_allclose(here["value"], there["value"], atol=1e-9)


def test_the_table_read_back_gives_the_same_figures(tmp_path):
    import polars as pl

    items, states = _with_groups(_tasks(12, 3), n_groups=3)
    table = _table(items, states)
    table.write_parquet(tmp_path / geometry.TABLE)
    read = pl.read_parquet(tmp_path / geometry.TABLE)
    here, there = (
        geometry.summarise(t, NOTHING_DECIDED, 3) for t in (table, read.sample(fraction=1.0, shuffle=True, seed=0))
    )
    assert here == there


def test_final_repeats_the_last_block():
    import polars as pl

    table = _table(_tasks(12, 3)).filter(pl.col("measure") != "probe_nested")
    last, final = (table.filter(pl.col("depth") == d).drop("depth", "depth_index") for d in ("block.2", "final"))
    assert last.height > 100
    assert last.equals(final)


def test_counterbalanced_sets_are_resampled_within_their_templates():
    items = _tasks(12, 4)
    sets = [replace(p, item=replace(p.item, set_id=f"{p.item.template}/{i % 4 // 2}")) for i, p in enumerate(items)]
    plain, by_set = (_scores(i).scores["geometry_tfidf"] for i in (items, sets))
    assert plain.value == by_set.value
    assert (plain.low, plain.high) != (by_set.low, by_set.high)


# What cannot be measured, and says so


def _status(scores, name):
    return scores[name].status


def test_without_paraphrase_groups_consistency_is_undefined():
    found = _scores(_tasks())
    assert _status(found.scores, "geometry_consistency") == "undefined: no paraphrase group was run"
    assert _verdicts(found)["geometry_consistency_centred", "random_group"] == "undecided (no paraphrase group was run)"


def test_a_group_with_one_wording_is_named_and_leaves_the_mean():
    items, states = _with_groups(_tasks(), n_groups=4)
    items = [p for p in items if p.item.template != "g02" or p.item.task_id == "g02/0"]
    found = _scores(items, states)
    assert found.scores["geometry_consistency"].n == 3
    assert [g["status"] for g in found.details["groups"]] == ["ok", "ok", "undefined: one wording", "ok"]
    assert "geometry: 1 of 4 paraphrase groups have no consistency" in found.notices


def test_groups_of_one_wording_only_are_undefined():
    items, states = _with_groups(_tasks(), wordings=1)
    found = _scores(items, states)
    assert _status(found.scores, "geometry_consistency") == "undefined: one wording"
    assert _verdicts(found)["geometry_consistency_centred", "random_group"] == "undecided (one wording)"


def test_more_wordings_than_tasks_have_no_random_group():
    items, states = _with_groups(_tasks(6, 1), wordings=7)
    found = _scores(items, states)
    assert found.scores["geometry_consistency"].status == "ok"
    assert _status(found.scores, "geometry_consistency_random") == "undefined: more wordings than tasks"
    assert _verdicts(found)["geometry_consistency_centred", "random_group"] == "undecided (more wordings than tasks)"
    # A pair of other tasks of the family is enough for the other control.
    assert found.scores["geometry_consistency_centred_family"].status == "ok"


def test_a_family_with_one_task_has_no_pair_and_the_others_stand():
    items = [*_tasks(), _planned(999, "alone", "binder_tracking", "template x", "p")]
    found = _scores(items)
    (row,) = [f for f in found.details["families"] if f["family"] == "binder_tracking"]
    assert (row["n"], row["within"], row["status"]) == (1, None, "undefined: the family has one task")
    assert row["between"] is not None
    assert found.scores["geometry_clustering"].status == "ok"
    assert "geometry: no pair of tasks within binder_tracking" in found.notices


def test_families_of_one_task_each_are_undefined():
    names = [LOGIC, COMPUTE, "binder_tracking", "proof_closure"]
    found = _scores([_planned(i, f"t{i}", name, f"template {i}", "p") for i, name in enumerate(names)])
    assert _status(found.scores, "geometry_clustering") == "undefined: the family has one task"
    assert _verdicts(found)["geometry_clustering_gap", "shuffled_family"] == "undecided (the family has one task)"


def test_one_family_is_undefined():
    found = _scores([p for p in _tasks() if p.item.family == LOGIC])
    assert _status(found.scores, "geometry_clustering") == "undefined: one family"
    assert _status(found.scores, "geometry_probe") == "undefined: no family of the group in this battery"
    assert _verdicts(found)["geometry_probe", "tfidf"] == "undecided (no family of the group in this battery)"


def test_families_of_one_template_each_cannot_be_told_from_it():
    items = [replace(p, item=replace(p.item, template=p.item.family)) for p in _tasks()]
    found = _scores(items)
    assert found.scores["geometry_clustering_gap"].value > 0
    assert _verdicts(found)["geometry_clustering_gap", "shuffled_family"] == "undecided (every family has one template)"
    assert _status(found.scores, "geometry_probe") == "undefined: a class has under 3 templates"
    assert found.scores["geometry_probe_single"].status != "ok"
    assert found.scores["geometry_probe_single"].value > 0.9


def test_families_of_a_users_own_cluster_but_are_no_class():
    own = [
        replace(p, item=replace(p.item, family={LOGIC: "rhymes", COMPUTE: "riddles"}[p.item.family])) for p in _tasks()
    ]
    by_context = {p.own.context: q for p, q in zip(own, _tasks(), strict=True)}
    found = _scores(own, lambda items, depth: _states([by_context[p.own.context] for p in items], depth))
    assert _verdicts(found)["geometry_clustering_gap", "shuffled_family"] == "survives"
    assert _status(found.scores, "geometry_probe") == "undefined: no family of the group in this battery"


def test_residuals_that_are_all_one_have_no_centred_cosine_and_never_zero():
    items, _ = _with_groups(_tasks(), n_groups=3)
    found = _scores(items, lambda chosen, depth: np.ones((len(chosen), 8)))
    assert found.scores["geometry_consistency"].value == pytest.approx(1)
    assert (
        _status(found.scores, "geometry_consistency_centred")
        == "undefined: nothing is left without the mean of the other prompts"
    )
    assert found.scores["geometry_clustering"].value == pytest.approx(1)
    assert (
        _status(found.scores, "geometry_clustering_gap")
        == "undefined: nothing is left without the mean of the other prompts"
    )
    assert found.scores["geometry_probe"].value == pytest.approx(0.5, abs=0.2)


# With a model


def _battery():
    subjects = ["red", "blue", "green", "x", "y"]
    tasks = tuple(
        Task(
            f"{family}/{t}/{k}", family, f"{word} {subjects[k]} {t} {end}", ("a b", "c", "d e"), k % 3, f"{family}/{t}"
        )
        for family, word, end in (
            (LOGIC, "If", "implies"),
            (COMPUTE, "Start with", "is"),
            ("proof_closure", "A proof", "by"),
        )
        for t in range(4)
        for k in range(3)
    )
    groups = tuple(
        ParaphraseGroup(f"g{g}", LOGIC, tasks[g].id, (tasks[g].prompt, f"So {g} is", f"{g}, then"), ("a b", "c"), 0)
        for g in range(3)
    )
    return Battery("mine", "1", tasks, groups)


def _measuring(model, folder, *, batch_tokens=256, progress=None, battery=None, protocol="multi-token"):
    plan = plan_run(
        items_of(battery or _battery(), ("real", "paraphrase"), 0),
        PromptStyle(model.tokens),
        protocol,
        context_length=model.context_length,
    )
    return Measuring(
        model, plan, NOTHING_DECIDED, 0, batch_tokens, {}, lambda columns: Parts(folder, columns), progress
    )


def _cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def _residuals(model, prompt):
    """(n_depths, d_model) of one prompt in a forward pass of its own."""
    ids = torch.tensor([[*model.tokens.prefix, *model.tokens.encode(prompt)]])
    batch = Batch(ids, torch.ones_like(ids), torch.arange(ids.shape[1])[None])
    return trace(model, batch, torch.tensor([0]), torch.tensor([ids.shape[1] - 1])).states[:, 0].double().tolist()


def _minus(row, rows):
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return [x - m for x, m in zip(row, mean, strict=True)]


def _mean(values):
    return pytest.approx(sum(values) / len(values), abs=1e-4)


@pytest.mark.tiny
@pytest.mark.parametrize(("family", "bos"), [("gpt2", "none"), ("llama", "adds")])
def test_cells_of_a_model_are_those_of_a_plain_loop(tiny_model, tmp_path, family, bos):
    import polars as pl

    model, battery = tiny_model(family, bos), _battery()
    table = geometry.measure(_measuring(model, tmp_path / "parts"))
    assert table["depth"].drop_nulls().unique().sort().to_list() == sorted(model.depths)

    def cell(measure, unit, depth):
        rows = table.filter(
            pl.col("measure") == measure, pl.col("unit") == unit, pl.col("depth") == model.depths[depth]
        )
        return rows["value"].item()

    tasks = {t.id: _residuals(model, t.prompt) for t in battery.tasks}
    words = {g.id: [_residuals(model, w) for w in g.wordings] for g in battery.paraphrases}
    for depth in (0, 2, model.n_blocks):
        rows = {k: states[depth] for k, states in tasks.items()}

        def cosine(a, b, suffix, rows=rows):
            rest = [v for k, v in rows.items() if k not in (a, b)]
            return _cosine(_minus(rows[a], rest), _minus(rows[b], rest)) if suffix else _cosine(rows[a], rows[b])

        for suffix in ("", "_centred"):
            for group in battery.paraphrases:
                others = [k for k in rows if k != group.base_task_id]
                own = [states[depth] for states in words[group.id]]
                own = [_minus(w, [rows[k] for k in others]) for w in own] if suffix else own
                assert cell(f"consistency{suffix}", group.id, depth) == _mean(
                    [_cosine(a, b) for a, b in combinations(own, 2)]
                )
                for control, pool in (("random", others), ("family", [k for k in others if k.startswith(LOGIC)])):
                    expected = _mean([cosine(a, b, suffix) for a, b in combinations(pool, 2)])
                    assert cell(f"consistency_{control}{suffix}", group.id, depth) == expected
            task = battery.tasks[5].id
            own = [cosine(task, k, suffix) for k in rows if k != task and k.startswith(LOGIC)]
            foreign = [cosine(task, k, suffix) for k in rows if not k.startswith(LOGIC)]
            assert cell(f"within{suffix}", task, depth) == _mean(own)
            assert cell(f"between{suffix}", task, depth) == _mean(foreign)


@pytest.mark.tiny
def test_batch_size_and_task_order_move_rounding_only_and_no_decision(tiny_model, tmp_path):
    model = tiny_model("gpt2")
    turned = replace(_battery(), tasks=_battery().tasks[::-1], paraphrases=_battery().paraphrases[::-1])
    here = geometry.measure(_measuring(model, tmp_path / "a", batch_tokens=1))
    there = geometry.measure(_measuring(model, tmp_path / "b", batch_tokens=4096, battery=turned))
    assert here.drop("value").equals(there.drop("value"))
    np.testing.assert_allclose(here["value"], there["value"], atol=1e-4)
    decisions = here["measure"].is_in(["probe", "probe_nested", "tfidf", "probe_single"])
    assert here.filter(decisions).equals(there.filter(decisions))


@pytest.mark.tiny
def test_a_phase_stopped_anywhere_goes_on_and_gives_the_same_table(tiny_model, tmp_path):
    model = tiny_model("gpt2")
    steps = []
    whole = geometry.measure(_measuring(model, tmp_path / "whole", progress=lambda *step: steps.append(step)))
    assert steps == [(i + 1, len(steps)) for i in range(len(steps))]
    assert len(steps) == 1 + model.n_blocks + 1

    for at in range(1, len(steps) + 1):

        def stop(done, _, at=at):
            if done == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            geometry.measure(_measuring(model, tmp_path / "cut", progress=stop))
    assert geometry.measure(_measuring(model, tmp_path / "cut")).equals(whole)


@pytest.mark.tiny
def test_the_prompt_is_read_where_it_ends_even_if_the_options_share_tokens(tiny_model, tmp_path):
    model = tiny_model("gpt2")
    battery = replace(_battery(), tasks=tuple(replace(t, options=("a b", "a c", "a d")) for t in _battery().tasks))
    by_protocol = [
        geometry.measure(_measuring(model, tmp_path / p, protocol=p, battery=battery))
        for p in ("multi-token", "first-distinct-token")
    ]
    assert by_protocol[0].equals(by_protocol[1])


def test_the_phase_names_itself():
    assert (geometry.NAME, geometry.TABLE) == ("geometry", "geometry.parquet")


def test_every_score_measure_column_and_control_is_explained():
    page = (Path(__file__).parents[2] / "docs" / "geometry.md").read_text()
    named = set(re.findall(r"`([^`\n]+)`", page))
    items, states = _with_groups(_tasks(12, 3), n_groups=3)
    table = _table(items, states)
    found = geometry.summarise(table, NOTHING_DECIDED, 0)
    measures = {name.removesuffix("_centred") for name in table["measure"]}
    assert measures | set(table.columns) | set(found.scores) <= named
    assert {row.control for row in found.evidence} | {row.signal for row in found.evidence} <= named
