"""The paper's Figure 4: who finds an optimum of the matrix game, in how many seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from macpf.algorithms.value import ValueDecomposition
from macpf.experiments.experiment import Experiment
from macpf.experiments.presets import experiment
from macpf.networks.mixers import Attention
from macpf.report.statistics import Share, chance_of_both
from macpf.reproduce.lanes import Found, Lanes, run_all

BEST = 8.0
ALPHA = 0.05  # below this chance ours and the paper's seeds are called different


@dataclass(frozen=True)
class Row:
    """One line of the table: a policy of an algorithm, and how the paper's five seeds did."""

    label: str
    algorithm: str
    policy: str = "ind"
    optimal: int | None = None
    worse: int | None = None


ROWS = (
    Row("MACPF", "macpf", optimal=5, worse=0),
    Row("MACPF_DEP", "macpf", "dep", optimal=5, worse=0),
    Row("macpf-plus", "macpf-plus"),
    Row("macpf-plus, dependent", "macpf-plus", "dep"),
    Row("QMIX", "qmix", optimal=0, worse=0),
    Row("QPLEX", "qplex", optimal=3, worse=1),
    Row("QPLEX, attention", "qplex-attention", optimal=3, worse=1),
    Row("QTRAN", "qtran", optimal=1, worse=0),
    Row("FOP", "fop", optimal=2, worse=2),
    Row("MAPPO", "mappo", optimal=0, worse=0),
    Row("VDN", "vdn"),
    Row("MACPF_CONTROL", "macpf-control"),
    Row("MACPF_NONLINEAR", "macpf-nonlinear"),
    Row("MACPF_NONLINEAR_DEP", "macpf-nonlinear", "dep"),
    Row("MACPF_ATT", "macpf-att"),
    Row("MACPF_ATT_DEP", "macpf-att", "dep"),
    Row("centralised control", "central"),
)
PAPER_SEEDS = 5
MORE_SEEDS = {"macpf": 5, "macpf-plus": 5}  # times the others'

LR = "algorithm.optimiser.lr"
EXPLORE = "algorithm.epsilon.start"
SLOWER = "algorithm.epsilon.rate"
RATES = (3e-4, 1e-3, 3e-3)
Q_LEARNERS = ("qmix", "qplex", "qplex-attention", "qtran", "vdn")


def reproduce(out: Path, seeds: int, scale: float, sweep_seeds: int, console: Console) -> None:
    """Runs every method (or takes what is there already), prints the table, writes data and figures."""
    methods = dict.fromkeys(row.algorithm for row in ROWS)
    wanted = [lanes_of(name, seeds, scale, sweep_seeds) for name in methods]
    found = run_all(wanted, out, console, joint_policy)
    table, markdown = verdicts(found)
    Console().print(table)
    draw_curves(found, out / "curves.png")
    draw_shares(found, out / "shares.png")
    parts = [markdown, lasting(found), *([sweep_table(found)] if sweep_seeds else [])]
    (out / "table.md").write_text("\n".join(parts))
    console.print(f"data, figures and table: {out}", highlight=False, soft_wrap=True)


def lanes_of(name: str, seeds: int, scale: float, sweep_seeds: int) -> Lanes:
    """An algorithm under the paper's setting, and with fewer seeds under others, the same for all.

    Others: learning rates up to ten times the paper's; exploration by epsilon where it has none, or an
    epsilon that falls half as fast where it has one.
    """
    made = experiment(name.removesuffix("-attention"), "matrix-game")
    if name.endswith("-attention"):
        algorithm: ValueDecomposition = made.algorithm
        made = replace(made, name=name, algorithm=replace(algorithm, mixer=Attention()))
    made = replace(made, steps=max(1, round(made.steps * scale)))
    rates = dict.fromkeys((made.algorithm.optimiser.lr, *RATES))
    grid: list[dict[str, float]] = [{LR: lr} for lr in rates]
    if name in Q_LEARNERS:
        grid = [s | {SLOWER: rate} for rate in (0.999, 0.9995) for s in grid]
    elif hasattr(made.algorithm, "epsilon_mode"):
        starts = (0.0, 1.0) if made.algorithm.epsilon_mode == "none" else (1.0, 0.0)
        off = replace(made.algorithm.epsilon, end=0.0)  # so that a start of 0 turns it off
        made = replace(made, algorithm=replace(made.algorithm, epsilon_mode="behaviour", epsilon=off))
        grid = [s | {EXPLORE: start} for start in starts for s in grid]
    counts = (seeds * MORE_SEEDS.get(name, 1), *[sweep_seeds] * (len(grid) - 1))
    kept = [(s, n) for s, n in zip(grid, counts, strict=True) if n]
    return Lanes(name, made, tuple(s for s, _ in kept), tuple(n for _, n in kept))


def joint_policy(experiment: Experiment[Any, Any], learner: Any) -> Mapping[str, Any]:
    """The probability of every joint action under every policy."""
    algorithm, env = experiment.algorithm, experiment.env
    _, first = env.reset(jax.random.key(0))
    memory = algorithm.init_memory(env.spec)
    actions = jnp.indices(env.table.shape).reshape(env.spec.n_agents, -1).T
    found = jax.vmap(lambda a: algorithm.log_prob(learner, memory, first.observation, a))(actions)
    return {f"pi_{name}": jnp.exp(log_pi).reshape(env.table.shape) for name, log_pi in found.items()}


def shares(returns: np.ndarray) -> tuple[Share, Share, Share]:
    """In how many seeds the last greedy policy is optimal, suboptimal at 0, and worse."""
    last, n = returns[:, -1], len(returns)
    counts = (np.sum(last == BEST), np.sum(last == 0), np.sum((last < BEST) & (last != 0)))
    optimal, zero, worse = (Share(int(count), n) for count in counts)
    return optimal, zero, worse


def verdict(row: Row, optimal: Share, worse: Share) -> str:
    """Are the paper's five seeds compatible with ours?"""
    if row.optimal is None or row.worse is None:
        return "not in the paper"
    chances = (
        chance_of_both(optimal, Share(row.optimal, PAPER_SEEDS)),
        chance_of_both(worse, Share(row.worse, PAPER_SEEDS)),
    )
    least = min(chances)
    return f"{'differs' if least < ALPHA else 'compatible'} (p = {least:.2g})"


def verdicts(found: Mapping[str, Found]) -> tuple[Table, str]:
    """The table for the terminal and as Markdown: paper's setting, at the end of training."""
    header = ("method", "seeds", "optimal (8)", "suboptimal (0)", "worse", "paper: optimal, worse", "verdict")
    table = Table(*header, title="Matrix game: greedy policies at the end of training, shares of seeds")
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in ROWS:
        optimal, zero, worse = shares(found[row.algorithm].of(0, row.policy))
        paper = "-" if row.optimal is None else f"{row.optimal}/5, {row.worse}/5"
        shown = (str(optimal.of), str(optimal), str(zero), str(worse))
        cells = (row.label, *shown, paper, verdict(row, optimal, worse))
        table.add_row(*cells)
        lines.append("| " + " | ".join(cells) + " |")
    return table, "\n".join(lines) + "\n"


def lasting(found: Mapping[str, Found]) -> str:
    """Who is optimal at every evaluation of the last fifth, and who keeps both optima alive in pi_dep."""
    header = (
        "method",
        "seeds",
        "optimal throughout the last fifth",
        "both optima at 0.4 or more",
        "both, mean",
    )
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in ROWS:
        result = found[row.algorithm]
        good = result.of(0, row.policy) == BEST
        always = Share(int(good[:, -max(1, good.shape[1] // 5) :].all(axis=1).sum()), len(good))
        pi = result.extra[f"pi_{row.policy}"][result.lanes.setting_of == 0]
        lesser = np.minimum(pi[:, 0, 0], pi[:, -1, -1])
        both = Share(int((lesser >= 0.4).sum()), len(good))
        total = f"{(pi[:, 0, 0] + pi[:, -1, -1]).mean():.2f}"
        lines.append("| " + " | ".join((row.label, str(len(good)), str(always), str(both), total)) + " |")
    return "\n".join(lines) + "\n"


def sweep_table(found: Mapping[str, Found]) -> str:
    """The share of optimal seeds under every setting, at half of training, at its end, and throughout."""
    lines = [
        "| method | setting | seeds | optimal at half | at the end | at every evaluation of the last fifth |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for row in ROWS:
        result = found[row.algorithm]
        for i, setting in enumerate(result.lanes.settings):
            good = result.of(i, row.policy) == BEST
            epochs = good.shape[1]
            said = ", ".join(
                f"{path.split('.')[-2]} {path.split('.')[-1]} {v:g}" for path, v in setting.items()
            )
            parts = (good[:, epochs // 2], good[:, -1], good[:, -max(1, epochs // 5) :].all(axis=1))
            cells = (row.label, said, str(len(good)), *(f"{100 * part.mean():.0f} %" for part in parts))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw_curves(found: Mapping[str, Found], path: Path) -> None:
    """Learning curves as in the paper: the mean over seeds, one standard deviation around it."""
    figure = Figure(figsize=(12, 5.4), layout="constrained")
    halves = (ROWS[:2] + ROWS[4:10], ROWS[:4] + ROWS[10:])
    titles = ("the methods of the paper's figure", "macpf-plus, ablations, VDN, centralised control")
    for axis, rows, title in zip(figure.subplots(1, 2, sharey=True), halves, titles, strict=True):
        for i, row in enumerate(rows):
            result = found[row.algorithm]
            values, colour = result.of(0, row.policy), f"C{i}" if i < 10 else "black"
            mean, std = values.mean(axis=0), values.std(axis=0)
            axis.plot(result.steps, mean, label=row.label, linewidth=1.5, color=colour)
            axis.fill_between(result.steps, mean - std, mean + std, color=colour, alpha=0.08, linewidth=0)
        axis.axhline(BEST, color="black", linewidth=0.6, linestyle=":")
        axis.set_ylim(-22, 12)
        axis.set_xlabel("episodes")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.25)
        axis.legend(fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False)
    figure.axes[0].set_ylabel("payoff of the greedy policy")
    figure.savefig(path, dpi=150)


def draw_shares(found: Mapping[str, Found], path: Path) -> None:
    """Shares of optimal, suboptimal and worse seeds as bars, the paper's optimal share as a mark."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axis = figure.subplots()
    labels = [row.label for row in ROWS][::-1]
    parts = np.asarray([[s.value for s in shares(found[r.algorithm].of(0, r.policy))] for r in ROWS])[::-1]
    left = np.zeros(len(ROWS))
    for values, name, colour in zip(
        parts.T, ("optimal (8)", "suboptimal (0)", "worse"), ("#2b8a5a", "#d9c77a", "#b5493f"), strict=True
    ):
        axis.barh(labels, values, left=left, label=name, color=colour)
        left += values
    marks = [(row.optimal / PAPER_SEEDS, row.label) for row in ROWS if row.optimal is not None]
    axis.plot(*zip(*marks, strict=True), "kD", clip_on=False, label="paper: optimal, of 5 seeds")
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of seeds at the end of training")
    axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.45, 1.1), ncols=4, frameon=False)
    figure.savefig(path, dpi=150)
