"""The paper's Table 1: the average reward of an episode on the three particle tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from macpf.envs import make
from macpf.envs.mpe.controllers import CONTROLLERS
from macpf.evaluation import rollouts, score, score_controller
from macpf.experiments.experiment import Experiment
from macpf.experiments.presets import PARTICLE_SIZE, experiment
from macpf.experiments.vary import lasting, vary
from macpf.report.statistics import Difference, Sample, chance_of_both_means, difference
from macpf.reproduce.lanes import Found, Lanes, Setting, run_all

TASKS = ("simple-spread", "formation-control", "line-control")
EPISODES = 512  # the same ones for all
ALPHA = 0.05  # below this chance ours and the paper's seeds are called different
PAPER_SEEDS = 5

Returns = Float[np.ndarray, "seeds episodes"]


@dataclass(frozen=True)
class Row:
    """One line of the table: a method, and the paper's mean and standard deviation on every task."""

    label: str
    algorithm: str
    paper: tuple[tuple[float, float], ...] = ()


ROWS = (
    Row("MACPF", "macpf", ((-118.24, 2.74), (-15.79, 0.16), (-19.60, 0.33))),
    Row("macpf-plus", "macpf-plus"),
    Row("QMIX", "qmix", ((-145.93, 21.09), (-16.11, 0.30), (-20.12, 0.21))),
    Row("QPLEX", "qplex", ((-122.50, 2.58), (-16.10, 0.28), (-20.17, 0.26))),
    Row("FOP", "fop", ((-125.19, 5.42), (-15.84, 0.19), (-19.78, 0.27))),
    Row("MAPPO", "mappo", ((-166.75, 23.44), (-21.71, 1.69), (-24.47, 2.54))),
    Row("VDN", "vdn"),
    Row("MACPF_CONTROL", "macpf-control"),
)
OURS = ("macpf", "macpf-plus")

# What is near the best for who sees what its agents see: all others in simple spread, nobody elsewhere.
CEILING = {"simple-spread": "look-ahead", "formation-control": "fixed", "line-control": "fixed"}

# On the first task the whole training is run at both rates, and the better one is the preset of all.
RATES = (1e-3, 2e-3)

# What every method is swept over in short runs: learning rates, discounts with factors of the reward (so that
# values are of the same size), and how far returns look ahead.
LR, ANNEAL, GAMMA = "algorithm.optimiser.lr", "algorithm.optimiser.anneal", "algorithm.gamma"
FACTOR = "reward_factor"
SWEPT = tuple(product((5e-4, 1e-3, 2e-3), ((0.99, 0.1), (0.9, 0.3), (0.8, 0.3)), (0.8, 0.0)))
SWEEP_SHARE = 0.15  # of the training, for a sweep


def reproduce(
    out: Path, seeds: int, scale: float, sweep_seeds: int, tasks: tuple[str, ...], console: Console
) -> None:
    """Trains every method on every task, prints the paper's table and ours, writes data and figures."""
    cells = [(row.algorithm, task) for task in tasks for row in ROWS]
    wanted = [lanes_of(*cell, seeds, scale) for cell in cells]
    swept = [sweep_of(*cell, sweep_seeds, scale) for cell in cells] if sweep_seeds else []
    found = run_all(wanted + swept, out, console, at_the_end)
    ceilings = {task: ceiling(task) for task in tasks}
    table, markdown = verdicts(found, ceilings)
    Console().print(table)
    draw_curves(found, ceilings, out / "curves.png")
    sweeps = [sweep_table(found, tasks)] if sweep_seeds else []
    parts = [markdown, leads(found, tasks), rates_table(found, tasks), *sweeps]
    (out / "table.md").write_text("\n".join(parts))
    console.print(f"data, figure and table: {out}", highlight=False, soft_wrap=True)


def lanes_of(name: str, task: str, seeds: int, scale: float) -> Lanes:
    """A method as it is set for a task; on the first task also at the other learning rate."""
    made = lasting(experiment(name, f"mpe/{task}"), scale)
    rates = RATES if task == TASKS[0] else ()
    settings: tuple[Setting, ...] = tuple({LR: rate} for rate in rates) or ({},)
    return Lanes(f"{task}/{name}", vary(made, settings[0]), settings, (seeds,) * len(settings))


def sweep_of(name: str, task: str, seeds: int, scale: float) -> Lanes:
    """A method on a task under the grid that is the same for all; learning rates stay, for it is short."""
    made = lasting(vary(experiment(name, f"mpe/{task}"), {ANNEAL: 0}), scale * SWEEP_SHARE)
    ahead, size = lambda_of(made), PARTICLE_SIZE[made.task]
    settings: tuple[Setting, ...] = tuple(
        {LR: lr, GAMMA: gamma, FACTOR: size * factor, ahead: lambda_}
        for lr, (gamma, factor), lambda_ in SWEPT
    )
    return Lanes(f"{task}/{name}-sweep", vary(made, settings[0]), settings, (seeds,) * len(settings))


def lambda_of(experiment: Experiment[Any, Any]) -> str:
    """The path of the number that says how far returns look ahead."""
    return f"algorithm.{'gae' if experiment.algorithm.on_policy else 'td'}_lambda"


def at_the_end(experiment: Experiment[Any, Any], learner: Any) -> Mapping[str, Any]:
    """The return of every policy in the common episodes, greedily."""
    key = jax.random.key(EPISODES)
    return {
        f"final_{name}": score(
            rollouts(experiment.algorithm, experiment.env, learner, key, policy=name, episodes=EPISODES)
        ).returns
        for name in experiment.algorithm.policies
    }


def ceiling(task: str) -> float:
    """What the near-optimal controller scores in the common episodes."""
    env: Any = make(f"mpe/{task}")
    scores = score_controller(env, CONTROLLERS[CEILING[task]], jax.random.key(EPISODES), episodes=EPISODES)
    return float(jnp.mean(scores.returns))


def preset_of(found: Found) -> int:
    """Which of the settings is the method's preset."""
    made = found.lanes.experiment
    return rates_of(found).index(experiment(made.name, made.task).algorithm.optimiser.lr)


def rates_of(found: Found) -> list[float]:
    """The learning rate of every setting."""
    own = found.lanes.experiment.algorithm.optimiser.lr
    return [setting.get(LR, own) for setting in found.lanes.settings]


def final(found: Mapping[str, Found], task: str, name: str) -> Returns:
    """The returns of a method's decentralised policy in the common episodes."""
    result = found[f"{task}/{name}"]
    return result.extra["final_ind"][result.lanes.setting_of == preset_of(result)]


def verdict(ours: Sample, paper: Sample | None) -> str:
    """Are the paper's five seeds compatible with ours?"""
    if paper is None:
        return "not in the paper"
    chance = chance_of_both_means(ours, paper)
    if chance >= ALPHA:
        return f"compatible (p = {chance:.2g})"
    return f"{'better' if ours.mean > paper.mean else 'worse'} (p = {chance:.2g})"


def verdicts(found: Mapping[str, Found], ceilings: Mapping[str, float]) -> tuple[Table, str]:
    """Ours beside the paper's, task by task: means and standard deviations over seeds."""
    header = ("task", "method", "seeds", "ours", "paper", "verdict", "of the best controller")
    table = Table(*header, title=f"Particle tasks: mean return of {EPISODES} episodes")
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for task, best in ceilings.items():
        for row in ROWS:
            returns = final(found, task, row.algorithm).mean(axis=1)
            ours = Sample.of(returns)
            paper = Sample(*row.paper[TASKS.index(task)], PAPER_SEEDS) if row.paper else None
            short = f"{100 * (best - ours.mean) / abs(best):.1f} % short of {best:.1f}"
            cells = (task, row.label, str(ours.n), str(ours), str(paper or "-"), verdict(ours, paper), short)
            table.add_row(*cells)
            lines.append("| " + " | ".join(cells) + " |")
    return table, "\n".join(lines) + "\n"


def leads(found: Mapping[str, Found], tasks: tuple[str, ...]) -> str:
    """How far the better of ours is ahead of every baseline, in the common episodes."""
    header = ("task", "ours", "against", "ahead by [95 % interval]")
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for task in tasks:
        best = max(OURS, key=lambda name, task=task: final(found, task, name).mean())
        for row in ROWS:
            if row.algorithm not in OURS:
                lead: Difference = difference(final(found, task, best), final(found, task, row.algorithm))
                lines.append(f"| {task} | {best} | {row.label} | {lead} |")
    return "\n".join(lines) + "\n"


def rates_table(found: Mapping[str, Found], tasks: tuple[str, ...]) -> str:
    """The mean return of the whole training at every learning rate it was run at."""
    lines = ["| task | method | learning rate | seeds | return |", "|---|---|---|---|---|"]
    for task in tasks:
        for row in ROWS:
            result = found[f"{task}/{row.algorithm}"]
            for i, rate in enumerate(rates_of(result)):
                ours = Sample.of(result.extra["final_ind"][result.lanes.setting_of == i].mean(axis=1))
                lines.append(f"| {task} | {row.label} | {rate:g} | {ours.n} | {ours} |")
    return "\n".join(lines) + "\n"


def sweep_table(found: Mapping[str, Found], tasks: tuple[str, ...]) -> str:
    """The mean return under every setting."""
    lines = [
        "| task | method | learning rate | discount | reward factor | lambda | seeds | return |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task in tasks:
        for row in ROWS:
            result = found[f"{task}/{row.algorithm}-sweep"]
            for i, setting in enumerate(result.lanes.settings):
                ours = Sample.of(result.extra["final_ind"][result.lanes.setting_of == i].mean(axis=1))
                ahead = setting[lambda_of(result.lanes.experiment)]
                said = f"{setting[LR]:g} | {setting[GAMMA]:g} | {setting[FACTOR]:g} | {ahead:g}"
                lines.append(f"| {task} | {row.label} | {said} | {ours.n} | {ours} |")
    return "\n".join(lines) + "\n"


def draw_curves(found: Mapping[str, Found], ceilings: Mapping[str, float], path: Path) -> None:
    """Learning curves, a panel for each task: the mean over seeds, one standard deviation around it."""
    figure = Figure(figsize=(4.6 * len(ceilings), 4.8), layout="constrained")
    panels = figure.subplots(1, len(ceilings), squeeze=False)[0]
    for axis, (task, best) in zip(panels, ceilings.items(), strict=True):
        _panel(axis, found, task, best)
    panels[0].set_ylabel("return of the greedy policy")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def _panel(axis: Axes, found: Mapping[str, Found], task: str, best: float) -> None:
    ends = []
    for i, row in enumerate(ROWS):
        result = found[f"{task}/{row.algorithm}"]
        values = result.of(preset_of(result), "ind")
        mean, std = values.mean(axis=0), values.std(axis=0)
        ends.append(mean[len(mean) // 10 :].min())
        axis.plot(result.steps, mean, label=row.label, linewidth=1.4, color=f"C{i}")
        axis.fill_between(result.steps, mean - std, mean + std, color=f"C{i}", alpha=0.1, linewidth=0)
    paper = ROWS[0].paper[TASKS.index(task)][0]
    axis.axhline(paper, color="C0", linewidth=0.8, linestyle="--", label="paper's MACPF")
    axis.axhline(best, color="black", linewidth=0.8, linestyle=":", label="near-optimal controller")
    low = max(min(ends), 3 * best)  # beginnings, and who diverges, are left out of the picture
    axis.set_ylim(low, best + 0.1 * abs(best))
    axis.set_title(task, fontsize=10)
    axis.set_xlabel("environment steps")
    axis.grid(alpha=0.25)
