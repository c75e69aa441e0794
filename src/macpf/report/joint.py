"""What the joint policies of a one-shot game represent, as tables and heat maps."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from macpf.runs.run import Run

LARGEST = 4096  # joint actions: more are no picture
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def has_picture(run: Run) -> bool:
    """Is this a one-shot game of two or more agents, small enough to show all of it?"""
    spec = run.experiment.env.spec
    return spec.horizon == 1 and spec.n_agents > 1 and spec.n_actions**spec.n_agents <= LARGEST


def joint_policies(run: Run) -> dict[str, np.ndarray]:
    """The probability of every joint action: rows are the first agent's, columns the others'."""
    experiment = run.experiment
    spec = experiment.env.spec
    memory = experiment.algorithm.init_memory(spec)
    _, first = experiment.env.reset(jax.random.key(0))
    actions = jnp.indices((spec.n_actions,) * spec.n_agents).reshape(spec.n_agents, -1).T

    def log_probs(learner):
        return jax.vmap(lambda a: experiment.algorithm.log_prob(learner, memory, first.observation, a))(
            actions
        )

    found = jax.jit(jax.vmap(log_probs))(run.learners)
    shape = (len(run.seeds), spec.n_actions, -1)
    return {name: np.exp(np.asarray(found[name])).reshape(shape) for name in experiment.algorithm.policies}


def table(run: Run, policy: str) -> Table:
    """One joint policy as a table for the terminal, the mean over seeds."""
    probs = joint_policies(run)[policy].mean(axis=0)
    out = Table(title=f"pi_{policy}, mean of {len(run.seeds)} seed{'s' * (len(run.seeds) > 1)}")
    out.add_column("agent 1")
    for name in _columns(run):
        out.add_column(name, justify="right")
    for i, row in enumerate(probs):
        cells = (f"[bold]{p:.2f}[/bold]" if p >= 0.1 else f"[dim]{p:.2f}[/dim]" for p in row)
        out.add_row(LETTERS[i % 26], *cells)
    return out


def draw(run: Run, path: Path) -> None:
    """Heat maps of every joint policy: the mean over seeds, and up to five seeds one by one."""
    policies = joint_policies(run)
    shown = run.seeds[:5]
    top = float(max(p.max() for p in policies.values()))
    figure = Figure(figsize=(2.1 * (len(shown) + 1) + 0.8, 2.3 * len(policies) + 0.5), layout="constrained")
    axes = figure.subplots(len(policies), len(shown) + 1, squeeze=False)
    for row, (name, probs) in zip(axes, policies.items(), strict=True):
        _panel(row[0], probs.mean(axis=0), f"pi_{name}, mean", _columns(run), top)
        for i, seed in enumerate(shown):
            _panel(row[i + 1], probs[i], f"pi_{name}, seed {seed}", _columns(run), top)
    figure.colorbar(axes[0][0].images[0], ax=axes, label="probability", shrink=0.8)
    figure.suptitle(
        f"Joint policies of {run.experiment.name} on {run.experiment.task} "
        "(rows: agent 1, columns: the other agents)",
        fontsize=10,
    )
    figure.savefig(path, dpi=150)


def _panel(axis: Axes, p: np.ndarray, title: str, columns: list[str], top: float) -> None:
    """One heat map, with numbers where there is room for them."""
    axis.imshow(p, vmin=0, vmax=top, cmap="viridis", aspect="auto")
    axis.set_title(title, fontsize=9)
    axis.set_xticks(range(p.shape[1]), columns if len(columns) <= 16 else [""] * len(columns), fontsize=8)
    axis.set_yticks(range(p.shape[0]), list(LETTERS[: p.shape[0]]), fontsize=8)
    for (i, j), value in np.ndenumerate(p):
        if value >= 0.05 and p.size <= 64:
            ink = "white" if value < 0.6 * top else "black"
            axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color=ink)


def _columns(run: Run) -> list[str]:
    spec = run.experiment.env.spec
    others = np.ndindex(*(spec.n_actions,) * (spec.n_agents - 1))
    return ["".join(LETTERS[a % 26] for a in actions) for actions in others]
