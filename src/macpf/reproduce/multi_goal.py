"""The paper's Figure 1: which goals sampled trajectories of joint policies go to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from macpf.evaluation import rollouts
from macpf.experiments.experiment import Experiment
from macpf.experiments.presets import experiment
from macpf.experiments.vary import lasting
from macpf.reproduce.lanes import Found, Lanes, run_all

ROLLOUTS = 200  # of every seed
START = 0.1  # where rollouts begin: all at the centre, give or take so much


@dataclass(frozen=True)
class Panel:
    """One picture: a policy of an algorithm."""

    label: str
    algorithm: str
    policy: str = "ind"
    sample: bool = True

    @property
    def paths(self) -> str:
        return f"path_{self.policy}" if self.sample else f"greedy_{self.policy}"


PANELS = (
    Panel("centralised control", "central"),
    Panel("FOP", "fop"),
    Panel("MACPF, pi_dep", "macpf", "dep"),
    Panel("macpf-plus, pi_dep", "macpf-plus", "dep"),
    Panel("macpf-plus, pi_ind", "macpf-plus"),
)


def reproduce(out: Path, seeds: int, scale: float, console: Console) -> None:
    """Trains every method, samples trajectories, prints where they end, draws them."""
    methods = dict.fromkeys(panel.algorithm for panel in PANELS)
    found = run_all([lanes_of(name, seeds, scale) for name in methods], out, console, trajectories)
    table, markdown = where_they_end(found)
    Console().print(table)
    draw(found, out / "trajectories.png")
    (out / "table.md").write_text(markdown)
    console.print(f"data, figure and table: {out}", highlight=False, soft_wrap=True)


def lanes_of(name: str, seeds: int, scale: float) -> Lanes:
    """A method as it is set for the task; its learning rate falls over the whole training."""
    return Lanes(name, lasting(experiment(name, "multi-goal"), scale), ({},), (seeds,))


def trajectories(experiment: Experiment[Any, Any], learner: Any) -> Mapping[str, Any]:
    """Sampled positions of every policy, step by step."""
    found = {}
    env = replace(experiment.env, start_spread=START)
    for name in experiment.algorithm.policies:
        for kind, sample in (("path", True), ("greedy", False)):
            episodes = rollouts(
                experiment.algorithm,
                env,
                learner,
                jax.random.key(0),
                policy=name,
                episodes=ROLLOUTS,
                sample=sample,
            )
            found[f"{kind}_{name}"] = jnp.round(episodes.observation.state * env.bound, 2)
    return found


def goals_reached(found: Found, paths: str) -> Int[np.ndarray, "seeds rollouts"]:
    """The goal that each trajectory ends at (within its width), or -1."""
    env = found.lanes.experiment.env
    last = found.extra[paths][:, :, -1]
    away = np.linalg.norm(last[:, :, None] - np.asarray(env.goals)[None, None], axis=-1)
    return np.where(away.min(axis=-1) <= env.goal_width, away.argmin(axis=-1), -1)


def evenness(shares: Float[np.ndarray, " 4"]) -> float:
    """The entropy of the goals reached, as a share of the largest possible, log 4."""
    p = shares[shares > 0] / max(shares.sum(), 1e-12)
    return float(-(p * np.log(p)).sum() / np.log(4)) if len(p) else 0.0


def where_they_end(found: Mapping[str, Found]) -> tuple[Table, str]:
    """The share of rollouts that reach each goal, its range over seeds, and how even the goals are."""
    header = (
        "policy",
        "seeds",
        "east",
        "north",
        "west",
        "south",
        "any goal",
        "evenness",
        "least to most of a seed",
    )
    table = Table(*header, title=f"Where {ROLLOUTS} rollouts of every seed end")
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for panel in PANELS:
        reached = goals_reached(found[panel.algorithm], panel.paths)
        by_seed = np.stack([(reached == goal).mean(axis=1) for goal in range(4)], axis=1)
        shares = by_seed.mean(axis=0)
        even = np.mean([evenness(row) for row in by_seed])
        numbers = (
            *(f"{100 * s:.0f} %" for s in shares),
            f"{100 * (reached >= 0).mean():.1f} %",
            f"{even:.2f}",
        )
        spread = f"{100 * by_seed.min():.0f} to {100 * by_seed.max():.0f} %"
        cells = (panel.label, str(len(reached)), *numbers, spread)
        table.add_row(*cells)
        lines.append("| " + " | ".join(cells) + " |")
    return table, "\n".join(lines) + "\n"


def draw(found: Mapping[str, Found], path: Path) -> None:
    """Trajectories of the first seed under every policy, over the rewards."""
    figure = Figure(figsize=(3.1 * len(PANELS), 3.5), layout="constrained")
    axes = figure.subplots(1, len(PANELS), sharey=True, squeeze=False)[0]
    for axis, panel in zip(axes, PANELS, strict=True):
        _panel(axis, found[panel.algorithm], panel)
    figure.savefig(path, dpi=150)


def _panel(axis: Axes, found: Found, panel: Panel) -> None:
    env = found.lanes.experiment.env
    ticks = np.linspace(-env.bound, env.bound, 141)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1)[:, :, None]
    away = ((grid - np.asarray(env.goals)[None, None]) ** 2).sum(axis=-1)
    reward = np.exp(-away / (2 * env.goal_width**2)).sum(axis=-1)
    axis.contourf(ticks, ticks, reward, levels=12, cmap="Greys", alpha=0.6)
    for line in found.extra[panel.paths][0, :60]:
        axis.plot(*line.T, color="tab:blue", alpha=0.35, linewidth=1)
        axis.plot(*line[-1], "o", color="tab:red", markersize=2.5)
    axis.set_title(panel.label, fontsize=10)
    axis.set_aspect("equal")
    axis.set_xticks([-5, 0, 5])
    axis.set_yticks([-5, 0, 5])
