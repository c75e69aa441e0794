"""What the commands of the command line can be told, and what becomes of it: options, or one sentence."""

import contextlib
import io
import re
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from macpf.algorithms import ALGORITHMS
from macpf.benchmarks import smac as smac_benchmark
from macpf.errors import UserError, unknown
from macpf.experiments.experiment import OFF_POLICY, Experiment
from macpf.experiments.presets import PRESETS
from macpf.reproduce import mpe, smac
from macpf.runs import drive

Options = TypeVar("Options")


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
        controller: instead of a trained policy, one written by hand. Of mpe/...: stay, random, simple,
            look-ahead (near the best) or fixed (the same, of agents that do not see each other); of smac/...:
            attack-nearest, focus-fire, kite, take-turns, hold-the-line or, on some maps, hold-the-choke.
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
        controller: instead of a trained policy, one written by hand. Of mpe/...: stay, random, simple,
            look-ahead or fixed; of smac/...: attack-nearest, focus-fire, kite, take-turns, hold-the-line or,
            on some maps, hold-the-choke.
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
            5 (mpe, smac), 240 (games), 4000 (episodes of the controllers), 256 (of SMAC's scripts) or 64
            (places of the landmarks for which mpe-apart searches).
        scale: length of training, as a multiple of the preset's (smac: of 500,000 steps).
        sweep: seeds of every method under each other setting of the sweep (0: no sweep).
        tasks: which of the particle tasks (mpe).
        maps: which of SMAC's maps; by default 3m and 8m (smac) or all (smac-scripted).
        algorithms: which algorithms learn on them (smac).
        out: the folder for data and figures (results/NAME).
    """

    name: tyro.conf.Positional[
        Literal[
            "matrix-game",
            "multi-goal",
            "random-games",
            "mpe",
            "mpe-controllers",
            "mpe-apart",
            "smac",
            "smac-scripted",
        ]
    ]
    seeds: int | None = None
    scale: float = 1.0
    sweep: int = 0
    tasks: tuple[Literal["simple-spread", "formation-control", "line-control"], ...] = mpe.TASKS
    maps: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = smac.METHODS
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


def train_options(chosen: Experiment[Any, Any], what: str) -> type[Any]:
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
        elif f.name not in untold(chosen):
            options.append((f.name, type(value), field(default=value)))
    made = make_dataclass("TrainOptions", options, frozen=True)
    made.__doc__ = f"{what}\n\n{(Experiment.__doc__ or '').split(chr(10), 2)[2]}"
    return made


def untold(chosen: Experiment[Any, Any]) -> tuple[str, ...]:
    """The fields of an experiment that are no options of `train`."""
    return ("name", "task", *(OFF_POLICY if chosen.algorithm.on_policy else ()))


def split_preset(args: list[str]) -> tuple[str, list[str]]:
    """The named preset among the arguments, and the others: it decides the defaults of the others."""
    if "--preset" not in args:
        return "default", args
    at = args.index("--preset")
    name = args[at + 1] if at + 1 < len(args) else ""
    for preset in PRESETS:
        if name == preset:
            return preset, args[:at] + args[at + 2 :]
    raise unknown("preset", name, PRESETS)


def parse(options: type[Options], args: list[str], command: str) -> Options:
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
