"""What people watch while a run goes on: a live line in the terminal, and TensorBoard."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from macpf.training import Record


def metric_lines(record: Record, seeds: Sequence[int], epoch: int, wall_s: float) -> list[dict[str, Any]]:
    """One line per seed of what an evaluation found; only `wall_s` differs between equal runs."""
    scores = {
        f"{what}_{name}": np.asarray(values).mean(axis=-1)
        for name, e in record.scores.items()
        for what, values in (("return", e.returns), ("won", e.won), ("length", e.length))
    }
    counters = {"steps": record.steps, "episodes": record.episodes, "updates": record.updates}
    columns = {name: np.asarray(v) for name, v in {**counters, **scores, **record.metrics}.items()}
    return [
        {"seed": seed, "epoch": epoch}
        | {name: v[i].item() for name, v in columns.items()}
        | {"wall_s": wall_s}
        for i, seed in enumerate(seeds)
    ]


class TensorBoard:
    """One TensorBoard run per seed."""

    def __init__(self, path: Path, seeds: Sequence[int], purge_step: int):
        from tensorboardX import SummaryWriter

        self.writers = {
            seed: SummaryWriter(str(path / f"seed_{seed}"), purge_step=purge_step) for seed in seeds
        }

    def log(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            for name, value in line.items():
                if name not in ("seed", "steps"):
                    self.writers[line["seed"]].add_scalar(name, value, line["steps"])
            self.writers[line["seed"]].flush()

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


class Display:
    """The live line: steps, episodes, updates, rates, time left, and the return of every policy.

    Says nothing where the output is not a terminal.
    """

    def __init__(self, console: Console, total_steps: int):
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            Counters(),
            TimeRemainingColumn(),
            TextColumn("left"),
            TextColumn("{task.fields[scores]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.progress.add_task("compiling", total=total_steps, episodes=0, updates=0, scores="")

    def __enter__(self) -> "Display":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def say(self, what: str) -> None:
        self.progress.update(self.task, description=what)

    def show(self, lines: Sequence[Mapping[str, Any]]) -> None:
        means = {name: float(np.mean([line[name] for line in lines])) for name in lines[0]}
        scores = "  ".join(f"{n.removeprefix('return_')} {v:.2f}" for n, v in means.items() if "return_" in n)
        self.progress.update(
            self.task,
            description="training",
            completed=means["steps"],
            episodes=int(means["episodes"]),
            updates=int(means["updates"]),
            scores=f"return: {scores}",
        )


class Counters(ProgressColumn):
    """Steps, episodes, updates, and steps per second of each seed."""

    def render(self, task: Task) -> Text:
        speed = f"{task.speed:,.0f} steps/s" if task.speed else "- steps/s"
        counts = f"{int(task.completed):,} steps, {task.fields['episodes']:,} episodes"
        return Text(f"{counts}, {task.fields['updates']:,} updates, {speed}")
