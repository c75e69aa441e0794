"""An experiment: an algorithm, a task and how long the one learns on the other, as one value."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from macpf.errors import require
from macpf.types import Algorithm, Environment

A = TypeVar("A", bound=Algorithm[Any])
E = TypeVar("E", bound=Environment[Any])


OFF_POLICY = ("updates_per_episode", "batch", "replay", "replay_half", "burn_in")


@dataclass(frozen=True)
class Experiment(Generic[A, E]):
    """Everything a training run is made of, but for the seeds.

    Args:
        name: the algorithm's name, for reports.
        task: the task's name, for reports.
        algorithm: who learns, with what hyper-parameters.
        env: where.
        reward_factor: what the learner learns from is the task's reward times this; scores are the task's.
        steps: environment steps of training.
        parallel: environments that play side by side; each plays whole episodes. An on-policy algorithm
            makes one update of the episodes of each round, and has no use for the next five.
        updates_per_episode: updates of the learner for every episode played.
        batch: episodes of one update.
        replay: episodes remembered.
        replay_half: remember observations in half precision.
        burn_in: episodes played before learning starts.
        eval_every: environment steps between evaluations.
        eval_episodes: episodes of one evaluation, the same ones each time.
    """

    name: str
    task: str
    algorithm: A
    env: E
    reward_factor: float = 1.0
    steps: int = 2_000_000
    parallel: int = 1
    updates_per_episode: int = 1
    batch: int = 32
    replay: int = 5000
    replay_half: bool = False
    burn_in: int = 100
    eval_every: int = 10_000
    eval_episodes: int = 32

    def __post_init__(self) -> None:
        for what, value in (
            ("steps", self.steps),
            ("parallel", self.parallel),
            ("updates_per_episode", self.updates_per_episode),
            ("batch", self.batch),
            ("replay", self.replay),
            ("eval_every", self.eval_every),
            ("eval_episodes", self.eval_episodes),
        ):
            require(value > 0, f"{what} must be positive, not {value}")
        require(self.reward_factor > 0, f"reward_factor must be positive, not {self.reward_factor}")
        if self.algorithm.on_policy:
            return
        require(
            self.batch <= self.replay,
            f"a batch of {self.batch} episodes does not fit a replay of {self.replay}",
        )
        require(
            self.parallel <= self.replay,
            f"{self.parallel} parallel environments overrun a replay of {self.replay} episodes at once",
        )
        require(
            self.burn_in >= self.batch,
            f"burn_in ({self.burn_in} episodes) must be at least one batch ({self.batch})",
        )
        anneal = getattr(getattr(self.algorithm, "optimiser", None), "anneal", 0)
        require(
            anneal == 0 or self.updates <= anneal,
            f"learning rates fall to nothing after {anneal} updates, but {self.steps} steps make "
            f"{self.updates}: set optimiser.anneal too (0: they stay)",
        )

    @property
    def warm_up_iterations(self) -> int:
        """Iterations that only play, so that the first update finds enough episodes."""
        return 0 if self.algorithm.on_policy else -(-self.burn_in // self.parallel)

    @property
    def updates_per_iteration(self) -> int:
        """Updates after each round of play."""
        return 1 if self.algorithm.on_policy else self.parallel * self.updates_per_episode

    @property
    def updates(self) -> int:
        """Updates from the replay that `steps` come to, by episodes of full length."""
        return self.steps // self.env.spec.horizon * self.updates_per_episode

    @property
    def remembered(self) -> int:
        """Episodes held in memory."""
        return self.parallel if self.algorithm.on_policy else self.replay

    @property
    def iterations_per_epoch(self) -> int:
        """Iterations from one evaluation to the next."""
        return max(1, round(min(self.eval_every, self.steps) / (self.parallel * self.env.spec.horizon)))

    @property
    def epochs(self) -> int:
        """Evaluations until `steps` are reached by episodes of full length."""
        per_epoch = self.iterations_per_epoch * self.parallel * self.env.spec.horizon
        return max(1, -(-self.steps // per_epoch))

    def goes_on(self, evaluations: int, steps: int) -> bool:
        """Is there more to train?  Where episodes end early, more evaluations are needed to reach `steps`."""
        return evaluations < self.epochs or steps < self.steps
