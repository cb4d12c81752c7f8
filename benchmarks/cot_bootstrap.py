"""2,000 bootstrap draws of everything one method is given on task 4's out-of-distribution test, against one rank loop.

    python benchmarks/cot_bootstrap.py [--repeats N]

The plain way draws questions, gathers their rows and ranks them anew for AUROC alone, with numpy, draw by draw. Ours
gives AUROC, TPR, TNR, g-mean², the oracle's g-mean², AUROC within questions, and the minimal criterion: with the given
threshold and with one chosen anew from redrawn validation questions in every draw. Scores are made (the time does not
depend on who made them); questions, labels and rates are the data's own, which must have been imported.
"""

from __future__ import annotations

import argparse

import numpy as np

from lmassay.cot.figures import binary_figures, tuned
from lmassay.cot.load import load_task
from lmassay.cot.predictions import Rows
from lmassay.cot.task import SplitData
from lmassay.measures.bootstrap import cluster_draws, rank_draws
from lmassay.measures.intervals import DRAWS
from work import announce, seconds


def rows_of(split: SplitData, rng: np.random.Generator) -> Rows:
    kept = split.usable
    n = int(kept.sum())
    score = rng.normal(size=n) + split.y[kept]
    rates = [split.hidden[name].cast(float).fill_null(np.nan).to_numpy()[kept] for name in ("p0", "p1")]
    return Rows(split.y[kept], score, split.groups[kept], *rates, np.zeros(n, np.int64), n, 0, {})


def plain(y: np.ndarray, score: np.ndarray, groups: np.ndarray, times: np.ndarray) -> np.ndarray:
    """AUROC of each draw by the mean rank of its positives."""
    _, codes = np.unique(groups, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    found = np.empty(len(times))
    for b, drawn in enumerate(times):
        rows = np.concatenate([members[c] for c in np.repeat(np.arange(len(drawn)), drawn)])
        _, back, counts = np.unique(score[rows], return_inverse=True, return_counts=True)
        # Tied scores share their mean rank.
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[back]
        positive = y[rows] == 1
        n = int(positive.sum())
        found[b] = (ranks[positive].sum() - n * (n + 1) / 2) / (n * (len(rows) - n))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    announce()
    data = load_task("4")
    rng = np.random.default_rng(0)
    test, validation = rows_of(data["ood_test"], rng), rows_of(data["validation"], rng)
    drawn = cluster_draws(test.groups, np.random.default_rng(1), y=test.y)
    again = cluster_draws(validation.groups, np.random.default_rng(2), y=validation.y)

    def ours() -> None:
        binary_figures(test, drawn, tuned(validation, again), interventional=True)

    def auroc_alone() -> None:
        rank_draws(test.y, test.score, drawn)

    def loop() -> None:
        plain(test.y, test.score, test.groups, drawn.times)

    gap = np.abs(plain(test.y, test.score, test.groups, drawn.times) - rank_draws(test.y, test.score, drawn)[0]).max()
    whole, alone, slow = (seconds(run, arguments.repeats) for run in (ours, auroc_alone, loop))
    print(f"{DRAWS} draws of {drawn.n_clusters} questions, {len(test.y)} rows; agreement of AUROC {gap:.1e}")
    print(f"plain rank loop (AUROC) {slow:.2f} s; ours, every figure {whole:.2f} s: {whole / slow:.2f} times the loop")
    print(f"ours, AUROC and oracle alone {alone:.2f} s: {alone / slow:.2f} times the loop")


if __name__ == "__main__":
    main()
