"""The command line: `macpf list | train | resume | evaluate | play | reproduce | bench`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from macpf.algorithms import ALGORITHMS
from macpf.benchmarks import learner as learner_benchmark
from macpf.benchmarks import smac as smac_benchmark
from macpf.envs import TASKS, make
from macpf.envs.controllers import controllers_of
from macpf.errors import UserError, require, unknown
from macpf.evaluation import score_controller
from macpf.experiments.experiment import Experiment
from macpf.experiments.presets import experiment
from macpf.options import (
    BenchOptions,
    EvaluateOptions,
    Nothing,
    PlayOptions,
    ReproduceOptions,
    ResumeOptions,
    parse,
    split_preset,
    train_options,
    untold,
)
from macpf.report import figures, joint
from macpf.report.replay.make import replay_of_controller, replay_of_run, write
from macpf.reproduce import (
    matrix_game,
    mpe,
    mpe_apart,
    mpe_controllers,
    multi_goal,
    random_games,
    smac,
    smac_scripted,
)
from macpf.runs import drive
from macpf.runs.directory import open_run
from macpf.runs.run import Run, free_path, load
from macpf.types import Controller, Environment


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; 0: done, 2: a mistake, told in one sentence, 130: stopped by the user."""
    command, *rest = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        if command in ("-h", "--help"):
            _help()
            return 0
        if command not in COMMANDS:
            raise unknown("command", command, COMMANDS)
        COMMANDS[command](rest)
        return 0
    except UserError as error:
        print(f"macpf: {error}", file=sys.stderr)
        return 2
    except drive.InterruptedRunError as stopped:
        print(f"macpf: {stopped}", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print("macpf: broken off; what the latest checkpoint holds can be resumed", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:
        print(f"macpf: cannot write {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 2


def list_(args: list[str]) -> None:
    """Algorithms and tasks, one line each, with sizes."""
    parse(Nothing, args, "list")
    console = Console()
    wide = 2 + max(map(len, (*ALGORITHMS, *TASKS)))
    console.print("Algorithms", style="bold")
    for name, entry in ALGORITHMS.items():
        console.print(f"  {name:{wide}}{entry.what} ({entry.paper})", highlight=False, soft_wrap=True)
    console.print("\nTasks", style="bold")
    for name, task in TASKS.items():
        spec = task.make().spec
        sizes = (
            f"{spec.n_agents} agents, {spec.n_actions} actions, observation {spec.obs_dim}, "
            f"state {spec.state_dim}, {spec.horizon} step{'s' * (spec.horizon > 1)}"
        )
        console.print(f"  {name:{wide}}{task.what}: {sizes}", highlight=False, soft_wrap=True)


def train(args: list[str]) -> None:
    """Trains an algorithm on a task: a new run directory, live progress, figures."""
    words = [arg for arg in args[:2] if not arg.startswith("-")]
    if len(words) < 2:
        _usage_of_train(args, words)
        return
    preset, args = split_preset(args[2:])
    chosen = experiment(words[0], words[1], preset)
    options = parse(train_options(chosen, train.__doc__ or ""), args, f"train {words[0]} {words[1]}")
    seeds = tuple(range(options.seed, options.seed + options.seeds))
    require(options.seeds > 0, f"the number of seeds must be positive, not {options.seeds}")
    require(options.seed >= 0, f"the first seed must not be negative, not {options.seed}")
    told = (f.name for f in fields(Experiment) if f.name not in untold(chosen))
    wanted = replace(chosen, **{name: getattr(options, name) for name in told})
    path = free_path(wanted) if options.out is None else options.out
    drive.start(path, wanted, seeds, Console(stderr=True), options.checkpoint_seconds)
    _show(load(path))


def resume(args: list[str]) -> None:
    """Goes on with a run exactly where it stopped."""
    options = parse(ResumeOptions, args, "resume")
    run = open_run(options.run)
    drive.proceed(run, Console(stderr=True), options.checkpoint_seconds)
    _show(load(options.run))


def evaluate(args: list[str]) -> None:
    """Evaluates a trained policy, seed by seed, or a controller written by hand."""
    options = parse(EvaluateOptions, args, "evaluate")
    if options.controller is not None:
        _evaluate_controller(options, options.controller)
        return
    run = _run(options)
    scores = run.evaluate(options.policy, options.episodes, sample=options.sample, seed=options.seed)
    how = "sampled" if options.sample else "greedy"
    title = f"{how} pi_{options.policy} of {options.run}: {options.episodes} episodes"
    table = Table("seed", "return", "std", "won", "steps", title=title)
    rows = zip(run.seeds, scores.returns, scores.won, scores.length, strict=True)
    for seed, returns, won, length in rows:
        numbers = (np.mean(returns), np.std(returns), np.mean(won), np.mean(length))
        table.add_row(str(seed), *(f"{x:.3f}" for x in numbers))
    means = np.mean(scores.returns, axis=1)
    numbers = (np.mean(means), np.std(means), np.mean(scores.won), np.mean(scores.length))
    table.add_section()
    table.add_row("all", *(f"{x:.3f}" for x in numbers))
    Console().print(table)


def _evaluate_controller(options: "EvaluateOptions", name: str) -> None:
    """What a controller written by hand scores on a task."""
    task = str(options.run)
    env, controller = _controller(options, name)
    require(options.episodes > 0, f"episodes must be positive, not {options.episodes}")
    scores = score_controller(env, controller, jax.random.key(options.seed), episodes=options.episodes)
    title = f"controller {name} on {task}: {options.episodes} episodes"
    table = Table("return", "± 95 %", "std", "won", "steps", title=title)
    std = np.std(scores.returns)
    numbers = (np.mean(scores.returns), 1.96 * std / np.sqrt(options.episodes), std)
    table.add_row(*(f"{x:.3f}" for x in (*numbers, np.mean(scores.won), np.mean(scores.length))))
    Console().print(table)


def play(args: list[str]) -> None:
    """Shows episodes of a run or of a controller: an animated GIF, and one page for a browser."""
    options = parse(PlayOptions, args, "play")
    console = Console(stderr=True)
    if options.controller is not None:
        env, controller = _controller(options, options.controller)
        require(options.learner is None, "a controller is no trained policy: --learner does not go with it")
        folder, task = options.out or Path("replays"), str(options.run)
        name = f"{task.replace('/', '-')}-{options.controller}-seed-{options.seed}"
        _require_folder(folder)
        with console.status("playing"):
            shown = replay_of_controller(
                task, env, options.controller, controller, options.episodes, options.seed
            )
    else:
        run = _run(options)
        folder, how = options.out or run.path / "replays", "sampled" if options.sample else "greedy"
        learner = run.seeds[0] if options.learner is None else options.learner
        made = run.experiment
        stem = f"{made.name}-{made.task.replace('/', '-')}-{options.policy}-{how}"
        name = f"{stem}-learner-{learner}-seed-{options.seed}"
        _require_folder(folder)
        with console.status("playing"):
            shown = replay_of_run(
                run,
                options.policy,
                options.episodes,
                sample=options.sample,
                seed=options.seed,
                learner=learner,
            )
    for path in write(shown, folder, name, console):
        Console().print(f"{path.suffix[1:]}: {path}", highlight=False, soft_wrap=True)


def reproduce(args: list[str]) -> None:
    """Runs a figure or table of the paper, and prints ours beside it with a verdict."""
    options = parse(ReproduceOptions, args, "reproduce")
    few = options.seeds is not None and options.seeds <= 0
    require(not few, f"the number of seeds must be positive, not {options.seeds}")
    require(options.sweep >= 0, f"the number of seeds of a sweep must not be negative, not {options.sweep}")
    require(options.scale > 0, f"the scale must be positive, not {options.scale}")
    out = Path("results") / options.name if options.out is None else options.out
    console = Console(stderr=True)
    require(
        options.sweep == 0 or options.name in ("matrix-game", "mpe"), "only matrix-game and mpe have a sweep"
    )
    require(options.tasks == mpe.TASKS or options.name == "mpe", "only mpe has several tasks to choose from")
    battles, learned = options.name in ("smac", "smac-scripted"), options.algorithms == smac.METHODS
    require(battles or not options.maps, "only smac and smac-scripted have maps to choose from")
    require(learned or options.name == "smac", "only smac has algorithms to choose from")
    untrained = options.name in ("mpe-controllers", "mpe-apart", "smac-scripted")
    require(options.scale == 1 or not untrained, f"nothing is trained in {options.name}, so it has no scale")
    if options.name == "mpe-controllers":
        mpe_controllers.reproduce(out, options.seeds or 4000, console)
    elif options.name == "mpe-apart":
        mpe_apart.reproduce(out, out.parent / "mpe", options.seeds or 64, console)
    elif options.name == "smac-scripted":
        smac_scripted.reproduce(out, options.maps or smac_scripted.MAPS, options.seeds or 256, console)
    elif options.name == "matrix-game":
        matrix_game.reproduce(out, options.seeds or 200, options.scale, options.sweep, console)
    elif options.name == "mpe":
        mpe.reproduce(out, options.seeds or 5, options.scale, options.sweep, options.tasks, console)
    elif options.name == "smac":
        smac.reproduce(
            out, options.maps or smac.MAPS, options.algorithms, options.seeds or 5, options.scale, console
        )
    elif options.name == "multi-goal":
        multi_goal.reproduce(out, options.seeds or 10, options.scale, console)
    else:
        random_games.reproduce(out, options.seeds or 240, options.scale, console)


def bench(args: list[str]) -> None:
    """The speed benchmarks, as ratios measured in one run."""
    options = parse(BenchOptions, args, "bench")
    if options.name == "smac":
        smac_benchmark.main(options.maps, options.copies, options.seconds, options.out)
    else:
        learner_benchmark.main(options.seeds, options.seconds, options.out, options.algorithms)


COMMANDS: Mapping[str, Callable[[list[str]], None]] = {
    "list": list_,
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "play": play,
    "reproduce": reproduce,
    "bench": bench,
}


def _run(options: EvaluateOptions | PlayOptions) -> Run:
    """The run that a command is about."""
    require(
        options.run.exists() or str(options.run) not in TASKS,
        f"{options.run} is a task, not a run directory: train on it, or name a --controller",
    )
    return load(options.run)


def _controller(options: EvaluateOptions | PlayOptions, name: str) -> tuple[Environment[Any], Controller]:
    """The task and the controller that a command is about."""
    task = str(options.run)
    env = make(task)
    known = controllers_of(env)
    require(len(known) > 0, f"there are no controllers of {task}, only of mpe/... and smac/...")
    spelt = name.replace("_", "-")
    if spelt not in known:
        raise unknown("controller", name, known)
    no_policy = options.policy == "ind" and not options.sample
    require(no_policy, "a controller is no trained policy: --policy and --sample do not go with it")
    return env, known[spelt]


def _require_folder(path: Path) -> None:
    require(
        path.is_dir() or not path.exists(), f"{path} is there already and is no folder: choose another --out"
    )


def _usage_of_train(args: list[str], words: list[str]) -> None:
    """What to say where the algorithm or the task is missing."""
    usage = "macpf train ALGORITHM TASK [--preset default|paper|authors] [options]"
    if set(args) & {"-h", "--help"}:
        print(f"usage: {usage}\n\nWith both named, --help shows every option with that experiment's values:")
        print(f"  macpf train {next(iter(ALGORITHMS))} {next(iter(TASKS))} --help")
        return
    if words and words[0] not in ALGORITHMS:
        raise unknown("algorithm", words[0], ALGORITHMS)
    raise UserError(f"train needs an algorithm and a task: {usage}")


def _show(run: Run) -> None:
    """The end of a run: scores, the joint policy of a one-shot game, and where everything is."""
    console = Console()
    drawn = figures.draw_all(run)
    last = [line for line in run.metrics if line["epoch"] == run.metrics[-1]["epoch"]]
    for name in run.experiment.algorithm.policies:
        returns = np.asarray([line[f"return_{name}"] for line in last])
        spread = f" +- {returns.std():.2f} over {len(returns)} seeds" if len(returns) > 1 else ""
        console.print(f"greedy pi_{name}: return {returns.mean():.2f}{spread}", highlight=False)
    if joint.has_picture(run):
        console.print(joint.table(run, list(run.experiment.algorithm.policies)[-1]))
    console.print(f"run: {run.path}", highlight=False, soft_wrap=True)
    for path in drawn:
        console.print(f"figure: {path}", highlight=False, soft_wrap=True)


def _help() -> None:
    print("usage: macpf COMMAND [options]\n")
    for name, command in COMMANDS.items():
        print(f"  {name:10}{(command.__doc__ or '').splitlines()[0]}")
    print(
        "\nmacpf COMMAND --help tells more; macpf train ALGORITHM TASK --help shows that experiment's values."
    )
