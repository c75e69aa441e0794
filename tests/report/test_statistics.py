"""Shares, means and tests of them, against known numbers."""

import numpy as np
import pytest
from scipy import stats

from macpf.report.statistics import Sample, Share, chance_of_both, chance_of_both_means, difference


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        (5, 10, 0.23659, 0.76341),
        (0, 10, 0.0, 0.27753),
        (10, 10, 0.72247, 1.0),
        (15, 148, 0.06239, 0.16049),
    ],
)
def test_wilson_s_interval_by_hand(count: int, of: int, low: float, high: float):
    """With z = 1.95996: (p + z^2/2n -+ z sqrt(p (1-p) / n + z^2/4n^2)) / (1 + z^2/n)."""
    share = Share(count, of)
    assert share.value == count / of
    assert share.interval == pytest.approx((low, high), abs=2e-5)
    z, p = 1.959964, count / of
    middle, half = p + z * z / (2 * of), z * (p * (1 - p) / of + z * z / (4 * of * of)) ** 0.5
    written_out = ((middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of))
    assert share.interval == pytest.approx(written_out, abs=1e-6)


def test_a_share_reads_in_per_cent():
    assert str(Share(5, 10)) == "50.0 % [23.7, 76.3]"
    assert str(Share(0, 10)) == "0.0 % [0.0, 27.8]"


@pytest.mark.parametrize(
    ("ours", "theirs", "chance"),
    [
        (Share(3, 4), Share(1, 4), 34 / 70),  # the lady tasting tea, two-sided
        (Share(5, 5), Share(0, 5), 2 / 252),  # the two extreme tables of ten in fives
        (Share(5, 5), Share(5, 5), 1.0),
        (Share(0, 200), Share(0, 5), 1.0),
    ],
)
def test_fisher_s_test_against_known_numbers(ours: Share, theirs: Share, chance: float):
    assert chance_of_both(ours, theirs) == pytest.approx(chance, rel=1e-9)
    assert chance_of_both(theirs, ours) == pytest.approx(chance, rel=1e-9)


def test_more_seeds_make_the_same_difference_less_likely():
    chances = [chance_of_both(Share(n // 2, n), Share(5, 5)) for n in (4, 20, 200)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] == pytest.approx(1 / 6)
    assert chances[-1] < 0.1


def test_a_sample_is_told_with_the_deviation_of_its_seeds():
    found = Sample.of(np.asarray([1.0, 2.0, 4.0]))
    assert (found.mean, found.n) == (pytest.approx(7 / 3), 3)
    assert found.std == pytest.approx(np.sqrt(7 / 3))
    assert str(found) == "2.33 ± 1.53"
    assert Sample.of(np.asarray([5.0])) == Sample(5.0, 0.0, 1)


def test_means_are_compared_by_welch_s_test():
    rng = np.random.default_rng(0)
    one, other = rng.normal(0, 1, 5), rng.normal(1, 3, 7)
    _, expected = stats.ttest_ind(one, other, equal_var=False)
    assert chance_of_both_means(Sample.of(one), Sample.of(other)) == pytest.approx(expected)


def test_a_difference_is_that_of_the_same_episodes():
    """What both sides have in common, episodes that are hard for all, does not widen the interval."""
    rng = np.random.default_rng(1)
    hard = rng.normal(0, 100, 200)
    noise = rng.normal(0, 1, (2, 5, 200))
    found = difference(hard + 3 + noise[0], hard + noise[1], draws=300)
    assert found.low < 3 < found.high
    assert found.high - found.low < 1
    assert found.mean == pytest.approx(3 + noise[0].mean() - noise[1].mean())


def test_a_difference_of_few_unlike_seeds_is_unsure():
    seeds = np.asarray([0.0, 10.0, 20.0])[:, None] + np.zeros((3, 50))
    found = difference(seeds, seeds + 1, draws=300)
    assert found.low < -5
    assert found.high > 5
