"""Beyond the paper: games drawn at random, the same constants for all of them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from macpf.envs.random_game import BEST, RandomGame
from macpf.experiments.presets import experiment, with_values
from macpf.experiments.vary import vary
from macpf.report.statistics import Share
from macpf.reproduce.lanes import Found, Lanes, run_all

# Each method at the best setting of the sweep over the paper's matrix game; all of them have the width, the
# memory and, where they explore by chance, the exploration of macpf-plus.
METHODS: Mapping[str, Mapping[str, float]] = {
    "macpf-plus": {},
    "macpf": {},
    "fop": {"algorithm.optimiser.lr": 3e-3},
    "qplex": {"algorithm.optimiser.lr": 1e-3},
    "qtran": {"algorithm.optimiser.lr": 1e-3},
}


def reproduce(out: Path, games: int, scale: float, console: Console) -> None:
    """Trains every method once on every game, prints how many games each solves, writes the data."""
    wanted = [lanes_of(name, games, scale) for name in METHODS]
    found = run_all(wanted, out, console)
    agents = np.asarray(jax.jit(jax.vmap(_players))(jnp.arange(games)))
    table, markdown = solved(found, agents)
    Console().print(table)
    (out / "table.md").write_text(markdown)
    console.print(f"data and table: {out}", highlight=False, soft_wrap=True)


def lanes_of(name: str, games: int, scale: float) -> Lanes:
    """A method as it is set for the matrix game, one seed on every game."""
    made = vary(experiment(name, "matrix-game"), METHODS[name])
    ours = experiment("macpf-plus", "matrix-game")
    algorithm = with_values(made.algorithm, hidden=ours.algorithm.hidden, epsilon=ours.algorithm.epsilon)
    sizes = {"steps": max(1, round(made.steps * scale)), "replay": ours.replay}
    made = replace(made, algorithm=algorithm, task="random-games", env=RandomGame(), **sizes)
    return Lanes(name, made, tuple({"env.game": float(game)} for game in range(games)), (1,) * games)


def _players(game: jax.Array) -> jax.Array:
    return jnp.sum(jnp.sum(RandomGame(game).draw().avail, axis=1) > 1)  # type: ignore[arg-type]


def solved(found: Mapping[str, Found], agents: np.ndarray) -> tuple[Table, str]:
    """The share of games whose best payoff the greedy policies get, in all and by number of agents."""
    counts = sorted(set(agents.tolist()))
    header = ("method", "policy", "best payoff at the end", "throughout the last fifth")
    header += tuple(f"{n} agents" for n in counts)
    table = Table(*header, title=f"{len(agents)} random games: share solved [95 % interval]")
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for name, result in found.items():
        for policy, returns in result.returns.items():
            good = returns == BEST
            throughout = good[:, -max(1, good.shape[1] // 5) :].all(axis=1)
            parts = [good[agents == n, -1] for n in counts]
            shares = [good[:, -1], throughout, *parts]
            cells = (name, policy, *(str(Share(int(s.sum()), len(s))) for s in shares))
            table.add_row(*cells)
            lines.append("| " + " | ".join(cells) + " |")
    return table, "\n".join(lines) + "\n"
