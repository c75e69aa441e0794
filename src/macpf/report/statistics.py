"""Shares and means of seeds, how sure they are, and whether others' seeds are compatible with them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
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


@dataclass(frozen=True)
class Sample:
    """The mean and the standard deviation of so many numbers."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Float[np.ndarray, " n"]) -> "Sample":
        return cls(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0, len(values))

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.std:.2f}"


def chance_of_both_means(ours: Sample, theirs: Sample) -> float:
    """Welch's test: how likely means as different as these are if both come from the same source."""
    pairs = ((s.mean, s.std, s.n) for s in (ours, theirs))
    one, other = pairs
    return float(stats.ttest_ind_from_stats(*one, *other, equal_var=False).pvalue)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Difference:
    """A difference of means with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def difference(
    ours: Float[np.ndarray, "seeds episodes"],
    theirs: Float[np.ndarray, "others episodes"],
    draws: int = 2000,
) -> Difference:
    """How far ours are ahead: the same episodes on both sides, seeds and episodes both drawn again."""
    rng = np.random.default_rng(0)
    episodes = ours.shape[1]

    def drawn(values: Float[np.ndarray, "n episodes"], columns: Int[np.ndarray, " episodes"]) -> float:
        return float(values[rng.integers(len(values), size=len(values))].mean(axis=0)[columns].mean())

    again = []
    for _ in range(draws):
        columns = rng.integers(episodes, size=episodes)
        again.append(drawn(ours, columns) - drawn(theirs, columns))
    low, high = np.quantile(again, (0.025, 0.975))
    return Difference(float(ours.mean() - theirs.mean()), float(low), float(high))
