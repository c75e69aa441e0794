"""A run that was trained: its history, and its policies to act with."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from macpf.errors import UserError, require, unknown
from macpf.evaluation import Evaluation, rollouts, score
from macpf.experiments.experiment import Experiment
from macpf.runs import drive
from macpf.runs.checkpoints import Checkpoints
from macpf.runs.directory import RunDirectory, open_run
from macpf.types import Actions, Environment, Memory, Observation, PRNGKey


@dataclass(frozen=True)
class Acting:
    """A policy of one seed, ready to act: `start` a memory, then call it with what is seen."""

    algorithm: Any
    learner: Any
    env: Environment[Any]
    name: str
    sample: bool

    def start(self) -> Memory:
        """The memory of agents that have seen nothing yet."""
        return self.algorithm.init_memory(self.env.spec)

    def __call__(
        self, memory: Memory, observation: Observation, key: PRNGKey | None = None
    ) -> tuple[Actions, Memory]:
        """What the agents do now, and their memory after it; a sampled policy needs a key."""
        require(not self.sample or key is not None, "a sampled policy needs a key")
        luck = jax.random.key(0) if key is None else key
        return self.algorithm.policies[self.name](self.learner, memory, observation, luck, sample=self.sample)


@dataclass(frozen=True)
class Run:
    """A run directory with its learners (a leading axis of seeds) and all its evaluations."""

    directory: RunDirectory
    learners: Any
    metrics: list[dict[str, Any]]

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def experiment(self) -> Experiment[Any, Any]:
        return self.directory.experiment

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.directory.seeds

    def learner(self, seed: int) -> Any:
        """What one seed has learned."""
        if seed not in self.seeds:
            raise unknown("seed", str(seed), map(str, self.seeds))
        return jax.tree.map(lambda x: x[self.seeds.index(seed)], self.learners)

    def policy(self, name: str = "ind", seed: int | None = None, *, sample: bool = False) -> Acting:
        """A policy by name (of the first seed, unless told otherwise)."""
        _known_policy(self.experiment, name)
        learner = self.learner(self.seeds[0] if seed is None else seed)
        return Acting(self.experiment.algorithm, learner, self.experiment.env, name, sample)

    def evaluate(
        self, policy: str = "ind", episodes: int = 32, *, sample: bool = False, seed: int = 0
    ) -> Evaluation:
        """What a policy of every seed achieves in the same episodes: [seeds, episodes]."""
        _known_policy(self.experiment, policy)
        require(episodes > 0, f"episodes must be positive, not {episodes}")
        algorithm, env = self.experiment.algorithm, self.experiment.env
        play = partial(rollouts, algorithm, env, policy=policy, episodes=episodes, sample=sample)
        scores = jax.jit(jax.vmap(lambda learner: score(play(learner, jax.random.key(seed)))))
        return jax.tree.map(np.asarray, scores(self.learners))


def load(path: str | Path, env: Environment[Any] | None = None) -> Run:
    """The run in a directory, at its latest checkpoint; `env` where it was trained on your own."""
    directory = open_run(Path(path), env)
    if not directory.checkpoints.is_dir():
        raise UserError(f"{path} has no checkpoint yet: go on with `macpf resume {path}`")
    checkpoints = Checkpoints(directory.checkpoints)
    try:
        done = checkpoints.latest()
        if done is None:
            raise UserError(f"{path} has no checkpoint yet: go on with `macpf resume {path}`")
        learners = checkpoints.restore_learner(done, drive.state_shapes(directory).learner)
    finally:
        checkpoints.close()
    return Run(directory, learners, [line for line in directory.read_metrics() if line["epoch"] <= done])


def train(
    experiment: Experiment[Any, Any],
    seeds: int | Sequence[int] = 5,
    out: str | Path | None = None,
    checkpoint_seconds: float = drive.CHECKPOINT_SECONDS,
) -> Run:
    """Trains an experiment with several seeds at once and returns the run; `out` is its new directory."""
    if isinstance(seeds, int):
        require(seeds > 0, f"the number of seeds must be positive, not {seeds}")
        seeds = range(seeds)
    path = Path(out) if out is not None else free_path(experiment)
    drive.start(path, experiment, tuple(seeds), Console(stderr=True), checkpoint_seconds)
    return load(path, experiment.env)


def resume(path: str | Path, env: Environment[Any] | None = None) -> Run:
    """Goes on with a run exactly where it stopped, to its end."""
    directory = open_run(Path(path), env)
    drive.proceed(directory, Console(stderr=True))
    return load(path, env)


def free_path(experiment: Experiment[Any, Any]) -> Path:
    """runs/ALGORITHM-TASK-K with the first K that is free."""
    stem = f"{experiment.name}-{experiment.task.replace('/', '-')}"
    numbers = (Path("runs") / f"{stem}-{k}" for k in range(1, 1_000_000))
    return next(path for path in numbers if not path.exists())


def _known_policy(experiment: Experiment[Any, Any], name: str) -> None:
    if name not in experiment.algorithm.policies:
        raise unknown(f"policy of {experiment.name}", name, experiment.algorithm.policies)
