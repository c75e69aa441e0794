"""From a run or a controller to a replay, and from a replay to its files."""

from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from macpf.errors import require
from macpf.report.replay.data import Family, Replay, replay
from macpf.report.replay.families import family_of
from macpf.report.replay.gif import beginning, images_of, to_gif
from macpf.report.replay.page import to_html
from macpf.report.replay.record import of_controller, of_policy
from macpf.runs.directory import write_whole
from macpf.runs.run import Run
from macpf.types import Controller, Environment

FEW, MANY = 3, 32  # episodes unless told otherwise: of a task of several steps, and of a game of one


def replay_of_run(
    run: Run,
    policy: str = "ind",
    episodes: int | None = None,
    *,
    sample: bool = False,
    seed: int = 0,
    learner: int | None = None,
    family: Family | None = None,
) -> Replay:
    """Episodes that `run.evaluate` plays with the same policy and seed, of one learner (the first).

    `family` says how your own task is shown; those of the package know it themselves.
    """
    acting = run.policy(policy, learner, sample=sample)
    env = run.experiment.env
    shown_as = family_of(env) if family is None else family
    count = episodes_of(env.spec.horizon, episodes)
    key = jax.random.key(seed)
    plays = of_policy(
        acting.algorithm, env, acting.learner, key, policy=policy, episodes=count, sample=sample
    )
    trained = f", seed {run.seeds[0] if learner is None else learner}" if len(run.seeds) > 1 else ""
    title = f"{run.experiment.name} on {run.experiment.task}{trained}"
    return replay(title, f"{'sampled' if sample else 'greedy'} pi_{policy}", env, shown_as, plays)


def replay_of_controller(
    task: str,
    env: Environment[Any],
    name: str,
    controller: Controller,
    episodes: int | None = None,
    seed: int = 0,
) -> Replay:
    """Episodes that `score_controller` plays with the key of the same seed."""
    count = episodes_of(env.spec.horizon, episodes)
    plays = of_controller(env, controller, jax.random.key(seed), episodes=count)
    return replay(task, f"controller {name}", env, family_of(env), plays)


def episodes_of(horizon: int, episodes: int | None) -> int:
    """How many episodes to play: of a one-shot game more, so that one sees what is chosen how often."""
    count = (MANY if horizon == 1 else FEW) if episodes is None else episodes
    require(count > 0, f"episodes must be positive, not {count}")
    return count


def write(shown: Replay, folder: Path, name: str, console: Console | None = None) -> tuple[Path, Path]:
    """Writes NAME.html and NAME.gif (the first episodes, if there are many) into a folder, and says where."""
    page, animation = folder / f"{name}.html", folder / f"{name}.gif"
    columns = (TextColumn("drawing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    first = beginning(shown)
    seen = console is not None and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not seen) as progress:
        task = progress.add_task("drawing", total=images_of(first))
        gif = to_gif(first, tell=lambda: progress.advance(task))
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(page, to_html(shown))
    write_whole(animation, gif)
    return page, animation
