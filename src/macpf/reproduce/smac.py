"""Learning on SMAC: the greedy decentralised policies' win rates on some maps, seed by seed."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from rich.console import Console
from rich.table import Table

from macpf.errors import unknown
from macpf.experiments.presets import FAMILIES, experiment
from macpf.report.statistics import Sample
from macpf.reproduce.lanes import Found, Lanes, run_all

MAPS = ("3m", "8m")
METHODS = ("qmix", "macpf")
STEPS = 500_000
LEARNED = 0.9  # a win rate at which a map counts as learned
WINDOW = 5  # evaluations whose mean is taken, as in the paper's figures

Rates = Float[np.ndarray, "seeds K"]


def reproduce(
    out: Path, maps: tuple[str, ...], methods: tuple[str, ...], seeds: int, scale: float, console: Console
) -> None:
    """Trains every method on every map, prints win rates, draws their curves, writes data."""
    for name in maps:
        if f"smac/{name}" not in FAMILIES:
            raise unknown("map", name, [t.removeprefix("smac/") for t in FAMILIES if t.startswith("smac/")])
    wanted = [lanes_of(method, name, seeds, scale) for name in maps for method in methods]
    found = run_all(wanted, out, console)
    table, markdown = win_rates(found)
    Console().print(table)
    draw_curves(found, maps, methods, out / "curves.png")
    (out / "table.md").write_text(markdown)
    console.print(f"data, figure and table: {out}", highlight=False, soft_wrap=True)


def lanes_of(method: str, name: str, seeds: int, scale: float) -> Lanes:
    """A method on a map as it is set there, but for the length of training."""
    made = experiment(method, f"smac/{name}")
    return Lanes(f"{name}/{method}", replace(made, steps=max(1, round(STEPS * scale))), ({},), (seeds,))


def smoothed(won: Rates) -> Rates:
    """The mean of the last evaluations, at each of them."""
    rows = [won[:, max(0, k + 1 - WINDOW) : k + 1].mean(axis=1) for k in range(won.shape[1])]
    return np.stack(rows, axis=1)


def learned_after(steps: Int[np.ndarray, " K"], won: Rates) -> int | None:
    """The steps from which on the seeds win on the mean as often as is asked for, to the end."""
    enough = smoothed(won).mean(axis=0) >= LEARNED
    if not enough[-1]:
        return None
    lasting = np.flatnonzero(~enough)
    return int(steps[lasting[-1] + 1 if len(lasting) else 0])


def win_rates(found: Mapping[str, Found]) -> tuple[Table, str]:
    """How often each policy wins at the end of the training, and when it learned to."""
    header = ("map", "method", "policy", "seeds", "win rate", "0.9 from", "verdict")
    table = Table(*header, title="SMAC without StarCraft: win rates of greedy policies")
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for name, result in found.items():
        for policy, won in result.won.items():
            at_the_end, since = Sample.of(smoothed(won)[:, -1]), learned_after(result.steps, won)
            when, verdict = ("-", "not learned") if since is None else (f"{since:,} steps", "learned")
            cells = (*name.split("/"), f"pi_{policy}", str(at_the_end.n), str(at_the_end), when, verdict)
            table.add_row(*cells)
            lines.append("| " + " | ".join(cells) + " |")
    return table, "\n".join(lines) + "\n"


def draw_curves(
    found: Mapping[str, Found], maps: tuple[str, ...], methods: tuple[str, ...], path: Path
) -> None:
    """Win rates over steps, a panel for each map: means of seeds, half a standard deviation around them."""
    figure = Figure(figsize=(4.6 * len(maps), 4.2), layout="constrained")
    panels = figure.subplots(1, len(maps), squeeze=False, sharex=True, sharey=True)[0]
    for axis, name in zip(panels, maps, strict=True):
        for i, method in enumerate(methods):
            result = found[f"{name}/{method}"]
            rates = smoothed(result.won["ind"])
            mean, half = rates.mean(axis=0), rates.std(axis=0) / 2
            axis.plot(result.steps, mean, label=method, linewidth=1.4, color=f"C{i}")
            axis.fill_between(result.steps, mean - half, mean + half, color=f"C{i}", alpha=0.15, linewidth=0)
        axis.axhline(LEARNED, color="black", linewidth=0.8, linestyle=":")
        axis.set(title=name, xlabel="environment steps", ylim=(-0.02, 1.02))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.grid(alpha=0.25)
    panels[0].set_ylabel("win rate of the greedy pi_ind")
    panels[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
