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
from rich import box
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
from macpf.training import EVALUATION_SEED

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

# On the first task whole trainings are run at both rates, but for some that are run at their preset's alone.
RATES = (1e-3, 2e-3)
ONE_RATE = ("qplex", "macpf-control")

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
    tables, markdown = verdicts(found, {task: ceiling(task) for task in tasks}, seeds)
    for table in tables:
        Console().print(table)
    draw_curves(found, tasks, out / "curves.png")
    sweeps = [sweep_table(found, tasks)] if sweep_seeds else []
    parts = [markdown, leads(found, tasks), dependence(found, tasks), rates_table(found, tasks), *sweeps]
    (out / "table.md").write_text("\n".join(parts))
    console.print(f"data, figure and table: {out}", highlight=False, soft_wrap=True)


def lanes_of(name: str, task: str, seeds: int, scale: float) -> Lanes:
    """A method as it is set for a task; on the first task most also at the other learning rate."""
    made = lasting(experiment(name, f"mpe/{task}"), scale)
    rates = RATES if task == TASKS[0] and name not in ONE_RATE else ()
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


def ceiling(task: str, seed: int | None = None, episodes: int | None = None) -> float:
    """What the near-optimal controller scores, in the common episodes unless told otherwise."""
    key, episodes = jax.random.key(EPISODES if seed is None else seed), episodes or EPISODES
    env: Any = make(f"mpe/{task}")
    scores = score_controller(env, CONTROLLERS[CEILING[task]], key, episodes=episodes)
    return float(jnp.mean(scores.returns))


def preset_of(found: Found) -> int:
    """Which of the settings is the method's preset."""
    made = found.lanes.experiment
    return rates_of(found).index(experiment(made.name, made.task).algorithm.optimiser.lr)


def rates_of(found: Found) -> list[float]:
    """The learning rate of every setting."""
    own = found.lanes.experiment.algorithm.optimiser.lr
    return [setting.get(LR, own) for setting in found.lanes.settings]


def final(found: Mapping[str, Found], task: str, name: str, policy: str = "ind") -> Returns:
    """The returns of a method's decentralised policy, or of another one, in the common episodes."""
    result = found[f"{task}/{name}"]
    return result.extra[f"final_{policy}"][result.lanes.setting_of == preset_of(result)]


def paper_s(row: Row, task: str) -> Sample | None:
    """The paper's seeds of a method on a task."""
    return Sample(*row.paper[TASKS.index(task)], PAPER_SEEDS) if row.paper else None


def verdict(ours: Sample, paper: Sample | None) -> tuple[str, str]:
    """Are the paper's five seeds compatible with ours, and how likely is such a difference by chance?"""
    if paper is None:
        return "-", "-"
    chance = chance_of_both_means(ours, paper)
    said = "compatible" if chance >= ALPHA else "better" if ours.mean > paper.mean else "worse"
    return said, told_chance(chance)


def told_chance(chance: float) -> str:
    return f"{chance:.2g}" if chance >= 0.001 else "< 0.001"


def against_controller(mean: float, best: float) -> str:
    """How much better than the near-optimal controller's a return is."""
    share = round(100 * (mean - best) / abs(best), 1)
    return f"{share:+.1f} %" if share else "equal"


def verdicts(
    found: Mapping[str, Found], ceilings: Mapping[str, float], seeds: int
) -> tuple[list[Table], str]:
    """Ours beside the paper's, task by task: means and standard deviations over seeds."""
    header = ("method", "ours", "paper", "verdict", "p", "controller")
    tables, lines = [], ["| task | " + " | ".join(header) + " |", "|---" * (len(header) + 1) + "|"]
    for task, best in ceilings.items():
        title = f"{task}: {EPISODES} episodes, {seeds} seeds (the best controller {best:.1f})"
        table = Table(*header, title=title, box=box.SIMPLE, pad_edge=False, collapse_padding=True)
        for row in ROWS:
            ours = Sample.of(final(found, task, row.algorithm).mean(axis=1))
            paper = paper_s(row, task)
            near = against_controller(ours.mean, best)
            cells = (row.label, str(ours), str(paper or "-"), *verdict(ours, paper), near)
            table.add_row(*cells)
            lines.append(f"| {task} | " + " | ".join(cells) + " |")
        tables.append(table)
    return tables, "\n".join(lines) + "\n"


def leads(found: Mapping[str, Found], tasks: tuple[str, ...]) -> str:
    """How far the better of ours is ahead of every baseline in the common episodes; MACPF in the paper."""
    header = ("task", "ours", "against", "ahead by [95 % interval]", "MACPF in the paper")
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for task in tasks:
        best = max(OURS, key=lambda name, task=task: final(found, task, name).mean())
        for row in ROWS:
            if row.algorithm not in OURS:
                lead: Difference = difference(final(found, task, best), final(found, task, row.algorithm))
                lines.append(f"| {task} | {best} | {row.label} | {lead} | {lead_in_paper(row, task)} |")
    return "\n".join(lines) + "\n"


def dependence(found: Mapping[str, Found], tasks: tuple[str, ...]) -> str:
    """What it is worth to agents to know what their predecessors do, where a method has a policy for that."""
    lines = ["| task | method | pi_dep ahead of pi_ind by [95 % interval] |", "|---|---|---|"]
    for task in tasks:
        for row in ROWS:
            if "final_dep" in found[f"{task}/{row.algorithm}"].extra:
                dep, ind = (final(found, task, row.algorithm, policy) for policy in ("dep", "ind"))
                ahead = difference(dep - ind, np.zeros((1, dep.shape[1])))  # of the same seed
                lines.append(f"| {task} | {row.label} | {ahead} |")
    return "\n".join(lines) + "\n"


def lead_in_paper(row: Row, task: str) -> str:
    """How far MACPF is ahead in the paper's own table, and how likely that is by chance."""
    macpf, other = paper_s(ROWS[0], task), paper_s(row, task)
    if macpf is None or other is None:
        return "-"
    return f"{macpf.mean - other.mean:.2f} (p {told_chance(chance_of_both_means(macpf, other))})"


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


def draw_curves(found: Mapping[str, Found], tasks: tuple[str, ...], path: Path) -> None:
    """Learning curves, a panel for each task: the mean over seeds, one standard deviation around it."""
    figure = Figure(figsize=(4.6 * len(tasks), 4.8), layout="constrained")
    for axis, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        _panel(axis, found, task)
    first = figure.axes[0]
    first.set_ylabel("return of the greedy policy")
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def _panel(axis: Axes, found: Mapping[str, Found], task: str) -> None:
    learned, ends, episodes = [], [], 0
    for i, row in enumerate(ROWS):
        result = found[f"{task}/{row.algorithm}"]
        values, episodes = result.of(preset_of(result), "ind"), result.lanes.experiment.eval_episodes
        mean, std = values.mean(axis=0), values.std(axis=0)
        learned.append(mean[len(mean) // 4 :].min())
        ends.append((mean + std)[-1])
        axis.plot(result.steps, mean, label=row.label, linewidth=1.4, color=f"C{i}")
        axis.fill_between(result.steps, mean - std, mean + std, color=f"C{i}", alpha=0.1, linewidth=0)
    # The episodes of the curves are fewer than those of the table: the controller plays the same ones.
    best = ceiling(task, EVALUATION_SEED, episodes)
    axis.axhline(best, color="black", linewidth=0.8, linestyle=":", label="near-optimal controller")
    low = max(min(learned), 3 * best)  # beginnings, and who diverges, are left out of the picture
    axis.set_ylim(low - 0.02 * abs(best), max(best, *ends) + 0.02 * abs(best))
    axis.set_title(task, fontsize=10)
    axis.set_xlabel("environment steps")
    axis.grid(alpha=0.25)
