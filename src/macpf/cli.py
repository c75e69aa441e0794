"""The command line: `macpf list | train | resume | evaluate | play | reproduce | bench`."""

import contextlib
import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from macpf.algorithms import ALGORITHMS
from macpf.benchmarks import learner as learner_benchmark
from macpf.benchmarks import smac as smac_benchmark
from macpf.envs import TASKS, make
from macpf.envs.mpe.controllers import CONTROLLERS, Controller
from macpf.envs.mpe.world import ParticleTask
from macpf.errors import UserError, require, unknown
from macpf.evaluation import score_controller
from macpf.experiments.experiment import OFF_POLICY, Experiment
from macpf.experiments.presets import PRESETS, experiment
from macpf.report import figures, joint
from macpf.report.replay.make import replay_of_controller, replay_of_run, write
from macpf.reproduce import matrix_game, mpe, mpe_controllers, multi_goal, random_games
from macpf.runs import drive
from macpf.runs.directory import open_run
from macpf.runs.run import Run, free_path, load

Options = TypeVar("Options")


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
    _parse(Nothing, args, "list")
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
    preset, args = _preset(args[2:])
    chosen = experiment(words[0], words[1], preset)
    options = _parse(_train_options(chosen), args, f"train {words[0]} {words[1]}")
    seeds = tuple(range(options.seed, options.seed + options.seeds))
    require(options.seeds > 0, f"the number of seeds must be positive, not {options.seeds}")
    require(options.seed >= 0, f"the first seed must not be negative, not {options.seed}")
    told = (f.name for f in fields(Experiment) if f.name not in _untold(chosen))
    wanted = replace(chosen, **{name: getattr(options, name) for name in told})
    path = free_path(wanted) if options.out is None else options.out
    drive.start(path, wanted, seeds, Console(stderr=True), options.checkpoint_seconds)
    _show(load(path))


def resume(args: list[str]) -> None:
    """Goes on with a run exactly where it stopped."""
    options = _parse(ResumeOptions, args, "resume")
    run = open_run(options.run)
    drive.proceed(run, Console(stderr=True), options.checkpoint_seconds)
    _show(load(options.run))


def evaluate(args: list[str]) -> None:
    """Evaluates a trained policy, seed by seed, or a controller written by hand."""
    options = _parse(EvaluateOptions, args, "evaluate")
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
    options = _parse(PlayOptions, args, "play")
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
    options = _parse(ReproduceOptions, args, "reproduce")
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
    if options.name == "mpe-controllers":
        require(options.scale == 1, "nothing is trained in mpe-controllers, so that it has no scale")
        mpe_controllers.reproduce(out, options.seeds or 4000, console)
    elif options.name == "matrix-game":
        matrix_game.reproduce(out, options.seeds or 200, options.scale, options.sweep, console)
    elif options.name == "mpe":
        mpe.reproduce(out, options.seeds or 5, options.scale, options.sweep, options.tasks, console)
    elif options.name == "multi-goal":
        multi_goal.reproduce(out, options.seeds or 10, options.scale, console)
    else:
        random_games.reproduce(out, options.seeds or 240, options.scale, console)


def bench(args: list[str]) -> None:
    """The speed benchmarks, as ratios measured in one run."""
    options = _parse(BenchOptions, args, "bench")
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


@dataclass(frozen=True)
class Nothing:
    """Takes no options."""


@dataclass(frozen=True)
class ResumeOptions:
    """Goes on with a run exactly where it stopped.

    Args:
        run: the run directory.
        checkpoint_seconds: time between checkpoints.
    """

    run: tyro.conf.Positional[Path]
    checkpoint_seconds: float = drive.CHECKPOINT_SECONDS


@dataclass(frozen=True)
class EvaluateOptions:
    """Evaluates a trained policy, seed by seed, or a controller written by hand.

    Args:
        run: the run directory; with --controller, the task.
        policy: which policy: ind (decentralised) or, where the algorithm has one, dep (the chain).
        episodes: how many episodes for every seed.
        sample: draw actions instead of taking the likeliest.
        seed: which episodes.
        controller: instead of a trained policy, a controller of the particle tasks: stay, random, simple,
            look-ahead (near the best) or fixed (the same, of agents that do not see each other).
    """

    run: tyro.conf.Positional[Path]
    policy: str = "ind"
    episodes: int = 32
    sample: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    seed: int = 0
    controller: str | None = None


@dataclass(frozen=True)
class PlayOptions:
    """Shows episodes of a run or of a controller: an animated GIF, and one page for a browser.

    Args:
        run: the run directory; with --controller, the task.
        policy: which policy: ind (decentralised) or, where the algorithm has one, dep (the chain).
        episodes: how many episodes; by default 3, or 32 of a one-shot game.
        seed: which episodes; `macpf evaluate` plays the same.
        sample: draw actions instead of taking the likeliest.
        learner: the trained seed whose policy acts (the first).
        controller: instead of a trained policy, a controller of the particle tasks: stay, random, simple,
            look-ahead or fixed.
        out: the folder for both files (RUN/replays; of a controller, replays).
    """

    run: tyro.conf.Positional[Path]
    policy: str = "ind"
    episodes: int | None = None
    seed: int = 0
    sample: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    learner: int | None = None
    controller: str | None = None
    out: Path | None = None


@dataclass(frozen=True)
class ReproduceOptions:
    """Runs a figure or table of the paper, and prints ours beside it with a verdict.

    What is there already, of the same settings and seeds, is not run again.

    Args:
        name: which figure or table.
        seeds: seeds (or games, or episodes) of every method, at once; by default 200, 10 (multi-goal),
            5 (mpe), 240 (games) or 4000 (episodes of the controllers).
        scale: length of training, as a multiple of the preset's.
        sweep: seeds of every method under each other setting of the sweep (0: no sweep).
        tasks: which of the particle tasks (mpe).
        out: the folder for data and figures (results/NAME).
    """

    name: tyro.conf.Positional[Literal["matrix-game", "multi-goal", "random-games", "mpe", "mpe-controllers"]]
    seeds: int | None = None
    scale: float = 1.0
    sweep: int = 0
    tasks: tuple[Literal["simple-spread", "formation-control", "line-control"], ...] = mpe.TASKS
    out: Path | None = None


@dataclass(frozen=True)
class BenchOptions:
    """The speed benchmarks, as ratios measured in one run.

    Args:
        name: which benchmark.
        algorithms: which algorithms to time (learner).
        seeds: numbers of vmapped seeds to time (learner).
        maps: which maps to time (smac).
        copies: numbers of environments side by side to time (smac).
        seconds: time to measure each for.
        out: a file for the numbers, as JSON.
    """

    name: tyro.conf.Positional[Literal["learner", "smac"]] = "learner"
    algorithms: tuple[str, ...] = tuple(ALGORITHMS)
    seeds: tuple[int, ...] = (1, 5)
    maps: tuple[str, ...] = smac_benchmark.MAPS
    copies: tuple[int, ...] = smac_benchmark.COPIES
    seconds: float = 5.0
    out: Path | None = None


def _run(options: EvaluateOptions | PlayOptions) -> Run:
    """The run that a command is about."""
    require(
        options.run.exists() or str(options.run) not in TASKS,
        f"{options.run} is a task, not a run directory: train on it, or name a --controller",
    )
    return load(options.run)


def _controller(options: EvaluateOptions | PlayOptions, name: str) -> tuple[ParticleTask, Controller]:
    """The task and the controller that a command is about."""
    task = str(options.run)
    env = make(task)
    if name not in CONTROLLERS:
        raise unknown("controller", name, CONTROLLERS)
    known = [task for task in TASKS if isinstance(make(task), ParticleTask)]
    if not isinstance(env, ParticleTask):
        raise UserError(f"there are no controllers of {task}, only of {', '.join(known)}")
    no_policy = options.policy == "ind" and not options.sample
    require(no_policy, "a controller is no trained policy: --policy and --sample do not go with it")
    return env, CONTROLLERS[name]


def _require_folder(path: Path) -> None:
    require(
        path.is_dir() or not path.exists(), f"{path} is there already and is no folder: choose another --out"
    )


def _train_options(chosen: Experiment[Any, Any]) -> type[Any]:
    """The options of `train`, with the preset's values as defaults: every field of the experiment is one."""
    unprefixed = tyro.conf.arg(name="")
    options: list[Any] = [
        ("seeds", Annotated[int, tyro.conf.arg(help="seeds trained at once")], field(default=5)),
        ("seed", Annotated[int, tyro.conf.arg(help="the first of them")], field(default=0)),
        ("out", Annotated[Path | None, tyro.conf.arg(help="the run directory")], field(default=None)),
        (
            "checkpoint_seconds",
            Annotated[float, tyro.conf.arg(help="time between checkpoints")],
            field(default=drive.CHECKPOINT_SECONDS),
        ),
    ]
    for f in fields(chosen):
        value = getattr(chosen, f.name)
        if f.name in ("algorithm", "env"):
            options.append((f.name, Annotated[type(value), unprefixed], field(default=value)))
        elif f.name not in _untold(chosen):
            options.append((f.name, type(value), field(default=value)))
    made = make_dataclass("TrainOptions", options, frozen=True)
    made.__doc__ = f"{train.__doc__}\n\n{(Experiment.__doc__ or '').split(chr(10), 2)[2]}"
    return made


def _untold(chosen: Experiment[Any, Any]) -> tuple[str, ...]:
    """The fields of an experiment that are no options of `train`."""
    return ("name", "task", *(OFF_POLICY if chosen.algorithm.on_policy else ()))


def _preset(args: list[str]) -> tuple[str, list[str]]:
    """The named preset among the arguments, and the others: it decides the defaults of the others."""
    if "--preset" not in args:
        return "default", args
    at = args.index("--preset")
    name = args[at + 1] if at + 1 < len(args) else ""
    for preset in PRESETS:
        if name == preset:
            return preset, args[:at] + args[at + 2 :]
    raise unknown("preset", name, PRESETS)


def _parse(options: type[Options], args: list[str], command: str) -> Options:
    """The options in the arguments; a mistake in them is one sentence."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                options,
                args=args,
                prog=f"macpf {command}",
                config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff)
                if command.startswith("train")
                else (),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UserError(_sentence(said.getvalue())) from None


def _sentence(box: str) -> str:
    """What tyro says in a box (a title, then parts between rules), in one sentence."""
    lines = box.splitlines()
    rules = [i for i, line in enumerate(lines) if line.startswith("╭") or not line.strip(" ─-│╰╯")]
    first, second = [*rules, 0, len(lines)][:2]
    texts = [line.strip(" │") for line in lines]
    problem = " ".join(text for text in texts[first + 1 : second] if text).rstrip(".")
    near = next((text.split()[0] for text in texts[second:] if re.match("--[a-z]", text)), None)
    hint = f"; did you mean {near}?" if near and "nrecognized" in problem else ""
    return f"{problem[:1].lower()}{problem[1:]}{hint}" if problem else "these options do not fit (see --help)"


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
