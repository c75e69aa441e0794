"""Shares and tests of them, against known numbers."""

import pytest

from macpf.report.statistics import Share, chance_of_both


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
