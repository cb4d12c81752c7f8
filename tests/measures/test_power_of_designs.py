"""Variance components and power, against simulation and a plain analysis of variance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import f_oneway, ttest_1samp

from lmassay.measures.power import Components, clusters_needed, power_of, variance_components


def drawn(rng, clusters, each, between, within, mean=0.0):
    centre = rng.normal(mean, between**0.5, clusters)
    values = centre[:, None] + rng.normal(0, within**0.5, (clusters, each))
    return values.ravel(), np.repeat([f"c{i}" for i in range(clusters)], each)


def test_components_of_a_balanced_design_are_those_of_the_analysis_of_variance():
    values, clusters = drawn(np.random.default_rng(0), 12, 5, 0.3, 1.0)
    found = variance_components(values, clusters)
    groups = values.reshape(12, 5)
    within = groups.var(axis=1, ddof=1).mean()
    assert found.within == pytest.approx(within, abs=1e-12)
    ratio = f_oneway(*groups).statistic
    assert found.between == pytest.approx(max(0, within * (ratio - 1) / 5), abs=1e-12)
    assert (found.n_clusters, found.n) == (12, 60)


def test_components_are_unbiased_for_unequal_clusters():
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 9, 200)
    clusters = np.repeat([f"c{i}" for i in range(200)], sizes)
    found = []
    for _ in range(200):
        centre = rng.normal(0, 0.5**0.5, 200)
        values = np.repeat(centre, sizes) + rng.normal(0, 1, sizes.sum())
        components = variance_components(values, clusters)
        found.append((components.between, components.within))
    np.testing.assert_allclose(np.mean(found, axis=0), (0.5, 1.0), atol=0.02)


def test_one_unit_a_cluster_leaves_the_two_variances_apart_unknown():
    assert variance_components([1.0, 2.0, 3.0], ["a", "b", "c"]) is None
    assert variance_components([1.0, 2.0, 3.0], ["a", "a", "a"]) is None


def test_power_is_the_share_of_simulated_batteries_that_find_the_effect():
    components = Components(between=0.02, within=0.2, n_clusters=0, n=0)
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(2000):
        values, _ = drawn(rng, 16, 4, components.between, components.within, mean=0.15)
        found += ttest_1samp(values.reshape(16, 4).mean(1), 0).pvalue < 0.05
    assert power_of(components, 0.15, 16, 4) == pytest.approx(found / 2000, abs=0.03)


def test_what_is_needed_is_the_fewest_that_suffice():
    components = Components(between=0.02, within=0.2, n_clusters=0, n=0)
    for each in (1, 4, 16):
        needed = clusters_needed(components, 0.1, each)
        assert power_of(components, 0.1, needed, each) >= 0.8 > power_of(components, 0.1, needed - 1, each)


def test_more_tasks_a_template_help_only_down_to_the_variance_between_templates():
    components = Components(between=0.05, within=0.2, n_clusters=0, n=0)
    needed = [clusters_needed(components, 0.1, each) for each in (1, 4, 64, 10_000)]
    assert needed == sorted(needed, reverse=True)
    assert needed[-1] >= clusters_needed(Components(0.05, 0.0, 0, 0), 0.1, 1)


def test_no_effect_is_never_found_with_power():
    assert clusters_needed(Components(0.1, 0.1, 0, 0), 0.0, 4) is None


def test_a_larger_effect_never_needs_more_clusters():
    for components in (Components(0.021, 0.0, 0, 0), Components(0.0, 1e-6, 0, 0), Components(0.3, 2.0, 0, 0)):
        needed = [clusters_needed(components, effect, 4) for effect in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)]
        assert needed == sorted(needed, reverse=True)


def test_without_variance_two_clusters_suffice():
    assert clusters_needed(Components(0.0, 0.0, 0, 0), 0.1, 1) == 2
