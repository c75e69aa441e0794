"""Learning curves: the mean over seeds, and one standard deviation around it."""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from macpf.runs.run import Run

LABELS = {"ind": "independent policy", "dep": "dependent policy"}


def curve(run: Run, metric: str) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, "seeds K"]]:
    """The steps of all evaluations, and a metric of every seed at each."""
    by_seed = [[line for line in run.metrics if line["seed"] == seed] for seed in run.seeds]
    steps = np.mean([[line["steps"] for line in lines] for lines in by_seed], axis=0)
    return steps, np.asarray([[line[metric] for line in lines] for lines in by_seed], float)


def draw(run: Run, path: Path) -> None:
    """The return of every policy over training."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axis = figure.subplots()
    for name in run.experiment.algorithm.policies:
        steps, values = curve(run, f"return_{name}")
        mean, std = values.mean(axis=0), values.std(axis=0)
        (line,) = axis.plot(steps, mean, label=LABELS.get(name, name), linewidth=1.6)
        axis.fill_between(steps, mean - std, mean + std, color=line.get_color(), alpha=0.2, linewidth=0)
    axis.set_xlabel("environment steps")
    axis.set_ylabel("return of the greedy policy")
    axis.set_title(f"{run.experiment.name} on {run.experiment.task}: mean and std of {len(run.seeds)} seeds")
    axis.title.set_fontsize(10)
    axis.grid(alpha=0.25)
    axis.legend()
    figure.savefig(path, dpi=150)
