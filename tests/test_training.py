"""Training: a pure function of an experiment and a key, that counts right."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float, Int

from macpf.envs.matrix import MatrixGame
from macpf.errors import UserError
from macpf.evaluation import rollouts
from macpf.experiments.experiment import Experiment
from macpf.optim import RMSprop
from macpf.training import Record, TrainState, begin, collect, epoch, iterate, train
from macpf.types import EnvSpec, Memory, Observation, Policy, Trajectory
from tests.helpers import Noise, close, quick_jit, same, tiny


class Tally(eqx.Module):
    """What a learner that only counts has met."""

    updates: Int[Array, ""]
    step: Int[Array, ""]
    only_real: Bool[Array, ""]
    luck: Float[Array, ""]
    drawn: Float[Array, ""]
    always_new: Bool[Array, ""]


@dataclass(frozen=True)
class Counting:
    """An algorithm that counts its updates and learns nothing."""

    on_policy: ClassVar[bool] = False

    @property
    def policies(self) -> Mapping[str, Policy]:
        return {"ind": self.execute}

    def init(self, key, spec: EnvSpec) -> Tally:
        zero, yes = jnp.zeros((), jnp.int32), jnp.asarray(True)
        return Tally(zero, zero, yes, jnp.zeros(()), jnp.zeros(()), yes)

    def init_memory(self, spec: EnvSpec) -> Memory:
        return Memory(jnp.zeros((spec.n_agents, 0)), jnp.full(spec.n_agents, -1))

    def explore(self, learner: Tally, memory: Memory, observation: Observation, key, step):
        return self.execute(learner, memory, observation, key)

    def execute(self, learner: Tally, memory: Memory, observation: Observation, key, *, sample: bool = False):
        return jnp.argmax(observation.avail, axis=-1).astype(jnp.int32), memory

    def log_prob(self, learner: Tally, memory: Memory, observation: Observation, actions):
        return {"ind": jnp.zeros(())}

    def update(self, learner: Tally, batch: Trajectory, key, step):
        luck, drawn = jax.random.uniform(key), jnp.sum(batch.reward)
        tally = Tally(
            updates=learner.updates + 1,
            step=step,
            only_real=learner.only_real & jnp.all(batch.mask[:, 0]),
            luck=luck,
            drawn=drawn,
            always_new=learner.always_new & (luck != learner.luck) & (drawn != learner.drawn),
        )
        return tally, {"number": tally.updates.astype(jnp.float32)}


def counting(**changes: Any) -> Experiment[Any, Any]:
    """A short experiment that only counts; its replay holds every episode."""
    sizes: Any = {"steps": 60, "eval_every": 30, "batch": 4, "replay": 200, "burn_in": 31, "eval_episodes": 3}
    return Experiment("counting", "noise", Counting(), Noise(), **(sizes | changes))


@cache
def trainer(experiment: Experiment[Any, Any]):
    """The compiled whole."""
    return quick_jit(partial(train, experiment))


def run(experiment: Experiment[Any, Any], seed: int = 0) -> tuple[TrainState, Record]:
    """The run of one seed."""
    return trainer(experiment)(jax.random.key(seed))


# Counters


@pytest.mark.parametrize(("parallel", "per_episode"), [(1, 1), (3, 1), (2, 3)])
def test_counters_are_those_of_what_was_played_and_learned(parallel, per_episode):
    experiment = counting(parallel=parallel, updates_per_episode=per_episode)
    state, record = run(experiment)
    warm_up = experiment.warm_up_iterations * parallel
    per_epoch = experiment.iterations_per_epoch * parallel
    episodes = warm_up + per_epoch * np.arange(1, experiment.epochs + 1)
    assert experiment.epochs >= 2
    assert experiment.burn_in <= warm_up < experiment.burn_in + parallel
    np.testing.assert_array_equal(record.episodes, episodes)
    np.testing.assert_array_equal(record.updates, (episodes - warm_up) * per_episode)
    played = np.asarray(state.replay.episodes.mask).sum(1)  # a replay that has room for all
    np.testing.assert_array_equal(record.steps, [played[:count].sum() for count in episodes])
    assert int(state.replay.added) == int(state.episodes) == episodes[-1]
    assert int(state.updates) == int(state.learner.updates) == record.updates[-1]
    assert int(state.steps) == int(state.learner.step) == record.steps[-1]


def test_nothing_is_learned_while_warming_up():
    state = quick_jit(partial(begin, counting(parallel=2)))(jax.random.key(0))
    assert int(state.updates) == int(state.learner.updates) == 0
    assert int(state.episodes) == 32
    assert int(state.steps) == np.asarray(state.replay.episodes.mask).sum() > 0


def test_every_batch_is_another_draw_of_episodes_that_were_played():
    state, _ = run(counting(parallel=2, updates_per_episode=3))
    assert bool(state.learner.only_real)
    assert bool(state.learner.always_new)


def test_no_two_episodes_are_the_same():
    state, _ = run(counting(parallel=3))
    seen = np.asarray(state.replay.episodes.observation.obs)[: int(state.episodes), 0, 0, 0]
    assert len(np.unique(seen)) == len(seen) > 33


def test_playing_and_updating_use_keys_of_their_own():
    experiment = counting()
    state = quick_jit(partial(begin, experiment))(jax.random.key(0))
    played = quick_jit(partial(collect, experiment))(state)
    learned, _ = quick_jit(partial(iterate, experiment))(state)
    assert same(played.replay, learned.replay)
    assert len(np.unique(jax.random.key_data(jnp.stack([state.key, played.key, learned.key])), axis=0)) == 3


def test_metrics_are_means_over_the_updates_of_an_epoch():
    experiment = counting(parallel=3)
    _, record = run(experiment)
    updates = experiment.iterations_per_epoch * 3
    first = (updates + 1) / 2
    np.testing.assert_allclose(record.metrics["number"], first + updates * np.arange(experiment.epochs))


def test_learners_see_the_reward_times_its_factor_and_scores_are_the_tasks_own():
    (plain, one), (scaled, other) = run(counting()), run(counting(reward_factor=0.25))
    rewards = (np.asarray(state.replay.episodes.reward) for state in (plain, scaled))
    reward, quarter = rewards
    assert np.abs(reward).max() > 0
    np.testing.assert_array_equal(quarter, 0.25 * reward)
    assert same(one.scores, other.scores)
    with pytest.raises(UserError, match="reward_factor must be positive, not 0"):
        counting(reward_factor=0.0)


# Evaluations


def test_every_evaluation_meets_the_same_episodes():
    """A policy that never changes scores the same at every epoch of every seed."""
    (_, one), (_, other) = run(counting(), 0), run(counting(), 1)
    assert one.scores["ind"].returns.shape == (2, 3)
    assert np.ptp(np.asarray(one.scores["ind"].returns), axis=0).max() == 0
    assert np.ptp(np.asarray(one.scores["ind"].returns), axis=1).min() > 0
    assert same(one.scores, other.scores)


def test_evaluations_do_not_touch_the_training():
    (one, _), (other, _) = run(counting()), run(counting(eval_episodes=1))
    assert same(one, other)


# Purity

LEARNING = Experiment(
    "macpf",
    "matrix-game",
    tiny(optimiser=RMSprop(lr=3e-3)),
    MatrixGame(),
    steps=30,
    eval_every=10,
    batch=4,
    replay=16,
    burn_in=4,
    eval_episodes=1,
)


@cache
def vmapped():
    """The compiled training of several seeds."""
    return quick_jit(jax.vmap(partial(train, LEARNING)))


def keys(*seeds: int):
    return jax.vmap(jax.random.key)(jnp.asarray(seeds))


def test_the_same_key_gives_the_same_run():
    fresh = quick_jit(partial(train, LEARNING))  # traced and compiled once more
    assert same(fresh(jax.random.key(3)), run(LEARNING, 3))
    assert not same(fresh(jax.random.key(4))[0].learner, run(LEARNING, 3)[0].learner)


@cache
def _greedy():
    def actions(learner: Any) -> dict[str, Array]:
        key, algorithm = jax.random.key(0), LEARNING.algorithm
        return {
            name: rollouts(algorithm, LEARNING.env, learner, key, policy=name, episodes=1).actions
            for name in algorithm.policies
        }

    return quick_jit(actions)


def test_a_seed_learns_the_same_in_company_and_alone():
    single, company = vmapped()(keys(3)), vmapped()(keys(0, 1, 2, 3, 4))
    one, other = (jax.tree.map(lambda x: x[0], single), jax.tree.map(lambda x: x[3], company))
    neighbour = jax.tree.map(lambda x: x[2], company)
    for (state, record), (state_too, record_too) in ((one, other), (one, run(LEARNING, 3))):
        assert close(record.metrics, record_too.metrics, tolerance=1e-4)
        assert same(record.scores, record_too.scores)
        assert close(state.learner.networks, state_too.learner.networks, tolerance=1e-4)
        assert same(_greedy()(state.learner), _greedy()(state_too.learner))
    assert not close(one[1].metrics, neighbour[1].metrics, tolerance=1e-4)


def test_epochs_one_by_one_are_the_whole_and_are_traced_once():
    traces = 0

    def counted(state: TrainState) -> tuple[TrainState, Record]:
        nonlocal traces
        traces += 1
        return epoch(LEARNING, state)

    advance = quick_jit(counted)
    state, records = quick_jit(partial(begin, LEARNING))(jax.random.key(3)), []
    for _ in range(LEARNING.epochs):
        state, record = advance(state)
        records.append(record)
    whole, history = run(LEARNING, 3)
    assert LEARNING.epochs >= 3
    assert traces == 1
    assert close((state, jax.tree.map(lambda *rows: jnp.stack(rows), *records)), (whole, history))


def test_the_length_of_a_run_changes_nothing_but_its_length():
    """A longer run begins as the shorter one does."""
    shorter, longer = run(counting()), run(counting(steps=90))
    assert same(shorter[1], jax.tree.map(lambda rows: rows[:2], longer[1]))
    assert len(longer[1].steps) == 3
