"""Shares of seeds, how sure they are, and whether a few seeds of somebody else's are compatible with them."""

from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class Share:
    """So many of so many, as a share with its 95 % interval (Wilson's)."""

    count: int
    of: int

    @property
    def value(self) -> float:
        return self.count / self.of

    @property
    def interval(self) -> tuple[float, float]:
        found = stats.binomtest(self.count, self.of).proportion_ci(method="wilson")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def chance_of_both(ours: Share, theirs: Share) -> float:
    """Fisher's exact test: how likely shares as different as these are if both come from the same source."""
    table = [[s.count, s.of - s.count] for s in (ours, theirs)]
    return float(stats.fisher_exact(table).pvalue)  # type: ignore[attr-defined]
