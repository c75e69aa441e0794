"""Every algorithm keeps the rules: it acts legally and alone, learns from what counts, and is pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jaxtyping import Array, Bool, Int

import macpf
from macpf.algorithms import ALGORITHMS
from macpf.algorithms.mappo import MAPPO
from macpf.envs import TASKS
from macpf.experiments.codec import decode, encode
from macpf.experiments.experiment import Experiment
from macpf.networks.mixers import Attention, Duplex, Hyper
from macpf.rollout import play
from macpf.training import begin, iterate, train
from macpf.types import Algorithm, EnvSpec, Memory, Observation, Policy, Trajectory
from tests.helpers import (
    SPEC,
    STEP,
    Noise,
    few,
    quick_jit,
    random_episodes,
    random_observation,
    same,
    seeds,
)

N, A, T = SPEC.n_agents, SPEC.n_actions, SPEC.horizon
JOINT = jnp.asarray(list(product(range(A), repeat=N)))  # all joint actions
KINDS = ("macpf", "macpf-plus", "fop", "qmix", "qtran", "mappo", "central")  # others are options of these
CASES = [(name, False) for name in ALGORITHMS] + [(name, True) for name in KINDS]

every_algorithm = pytest.mark.parametrize(
    ("name", "recurrent"),
    [pytest.param(*case, id=f"{case[0]}-{'recurrent' if case[1] else 'feed-forward'}") for case in CASES],
)


def fast_key(seed: Any) -> Array:
    """A key of a generator that compiles quickly; no rule depends on which one it is."""
    return jax.random.key(seed, impl="unsafe_rbg")


@cache
def small(name: str, recurrent: bool) -> Experiment[Any, Any]:
    """The algorithm's own experiment on a noisy task, with few units and episodes."""
    made = macpf.experiment(name, Noise())
    algorithm: Any = replace(made.algorithm, hidden=8, recurrent=recurrent)
    for kind, mixer in ((Hyper, {"embed": 8}), (Attention, {"heads": 2, "embed": 4}), (Duplex, {"heads": 2})):
        if isinstance(getattr(algorithm, "mixer", None), kind):
            algorithm = replace(algorithm, mixer=replace(algorithm.mixer, hidden=8, **mixer))
    if isinstance(algorithm, MAPPO):
        algorithm = replace(algorithm, layers=1, chunk=2, ppo_epochs=2)
    sizes = {"steps": 20, "eval_every": 10, "parallel": 2, "batch": 3, "replay": 6, "burn_in": 3}
    return replace(made, algorithm=algorithm, eval_episodes=2, **sizes)


@cache
def learner_of(name: str, recurrent: bool) -> Any:
    """A learner that has not learned yet, with sizeable parameters."""
    rng = np.random.default_rng(0)
    algorithm = small(name, recurrent).algorithm
    shapes = jax.eval_shape(lambda key: algorithm.init(key, SPEC), fast_key(0))
    zeros = jax.tree.map(lambda x: jnp.asarray(np.zeros(x.shape, x.dtype)), shapes)
    networks = jax.tree.map(
        lambda x: jnp.asarray(0.5 * rng.standard_normal(x.shape), x.dtype), shapes.networks
    )
    return eqx.tree_at(lambda x: x.networks, zeros, networks)


@cache
def acting(name: str, recurrent: bool):
    """Everything an algorithm does at one moment: actions and memories by name, and log-probabilities."""
    algorithm = small(name, recurrent).algorithm

    def act(learner, memory, observation, key):
        done = {"explore": algorithm.explore(learner, memory, observation, key, STEP)}
        for policy, call in algorithm.policies.items():
            done[policy] = call(learner, memory, observation, key)
            done[f"{policy} sampled"] = call(learner, memory, observation, key, sample=True)
        log_prob = jax.vmap(lambda actions: algorithm.log_prob(learner, memory, observation, actions))
        return done, log_prob(JOINT)

    return quick_jit(act)


def moment(seed: int, name: str, recurrent: bool) -> tuple[Memory, Observation]:
    """A random moment in the middle of an episode."""
    rng = np.random.default_rng(seed)
    hidden = rng.uniform(-1, 1, small(name, recurrent).algorithm.init_memory(SPEC).hidden.shape)
    if name == "central":
        hidden[:] = hidden[:1]  # one memory for all
    previous = jnp.asarray(rng.integers(-1, A, N), jnp.int32)
    return Memory(jnp.asarray(hidden, jnp.float32), previous), random_observation(rng, ())


# What it is


@every_algorithm
def test_it_is_an_algorithm(name, recurrent):
    algorithm = small(name, recurrent).algorithm
    assert isinstance(algorithm, Algorithm)
    assert algorithm.policies["ind"] == algorithm.execute
    assert isinstance(algorithm.on_policy, bool)
    assert hash(algorithm) == hash(small.__wrapped__(name, recurrent).algorithm)
    memory = algorithm.init_memory(SPEC)
    assert memory.hidden.shape == (N, 8 if recurrent else 0)
    assert np.all(np.asarray(memory.previous) == -1)
    assert np.all(np.asarray(memory.hidden) == 0)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_key_makes_one_learner_that_plays_the_same_episodes(name):
    algorithm = small(name, recurrent=True).algorithm

    @quick_jit
    def begin(key):
        init_key, play_key = jax.random.split(key)
        learner, memory = algorithm.init(init_key, SPEC), algorithm.init_memory(SPEC)
        act = partial(algorithm.explore, learner, step=STEP)
        return learner, jax.vmap(lambda key: play(Noise(), act, memory, key))(jax.random.split(play_key, 4))

    one, again, other = (begin(fast_key(seed)) for seed in (0, 0, 1))
    assert same(one, again)
    assert not same(one[0].networks, other[0].networks)
    assert not same(one[1].actions, other[1].actions)
    rows = np.asarray(one[1].observation.avail)[:, :-1]
    assert np.take_along_axis(rows, np.asarray(one[1].actions)[:, :-1, :, None], -1).all()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_its_experiments_survive_json(name, task):
    experiment = macpf.experiment(name, task)
    assert decode(json.loads(json.dumps(encode(experiment)))) == experiment


# How it acts


@every_algorithm
@few(6)
@given(seed=seeds)
def test_every_action_is_an_available_one_and_is_remembered(name, recurrent, seed):
    memory, observation = moment(seed, name, recurrent)
    done, _ = acting(name, recurrent)(learner_of(name, recurrent), memory, observation, fast_key(seed))
    for how, (actions, after) in done.items():
        assert actions.shape == (N,), how
        assert actions.dtype == jnp.int32, how
        assert np.asarray(observation.avail)[np.arange(N), np.asarray(actions)].all(), how
        assert np.array_equal(after.previous, actions), how
        assert after.hidden.shape == memory.hidden.shape, how
        assert not (recurrent and same(after.hidden, memory.hidden)), how


@every_algorithm
@few(4)
@given(seed=seeds)
def test_its_policies_are_distributions_over_available_joint_actions(name, recurrent, seed):
    memory, observation = moment(seed, name, recurrent)
    algorithm = small(name, recurrent).algorithm
    done, log_probs = acting(name, recurrent)(
        learner_of(name, recurrent), memory, observation, fast_key(seed)
    )
    possible = np.asarray(observation.avail)[np.arange(N), np.asarray(JOINT)].all(-1)
    assert set(log_probs) == set(algorithm.policies)
    for policy, log_prob in log_probs.items():
        probs = np.exp(np.asarray(log_prob, float))
        np.testing.assert_allclose(probs.sum(), 1, rtol=1e-5, err_msg=policy)
        assert np.all(probs[~possible] == 0), policy
        drawn = np.all(np.asarray(JOINT) == np.asarray(done[f"{policy} sampled"][0]), axis=-1)
        assert probs[drawn].item() > 0, policy
    greedy = np.all(np.asarray(JOINT) == np.asarray(done["ind"][0]), axis=-1)
    assert np.asarray(log_probs["ind"])[greedy].item() >= np.max(log_probs["ind"]) - 1e-5


def crowded(seed: int, name: str, recurrent: bool, i: int) -> tuple[Memory, Observation]:
    """The moment with everything changed but what agent i sees and remembers."""
    (memory, observation), (elsewhere, strange) = (moment(s, name, recurrent) for s in (seed, seed + 1))
    own = np.arange(N) == i
    return (
        Memory(
            jnp.asarray(np.where(own[:, None], memory.hidden, elsewhere.hidden)),
            jnp.asarray(np.where(own, memory.previous, elsewhere.previous)),
        ),
        Observation(
            jnp.asarray(np.where(own[:, None], observation.obs, strange.obs)),
            strange.state,
            jnp.asarray(np.where(own[:, None], observation.avail, strange.avail)),
            strange.visible,
        ),
    )


@every_algorithm
def test_an_agent_executes_by_what_it_sees_itself(name, recurrent):
    """All but centralised control, which is told everything and shows that the test would see it."""
    learner, act = learner_of(name, recurrent), acting(name, recurrent)
    alone_too = []
    for seed in range(6):
        key = fast_key(seed)
        alone, _ = act(learner, *moment(seed, name, recurrent), key)
        for i in range(N):
            crowd, _ = act(learner, *crowded(seed, name, recurrent, i), key)
            for how in ("ind", "ind sampled"):
                (one, before), (other, after) = alone[how], crowd[how]
                alone_too.append(bool(one[i] == other[i]) and same(before.hidden[i], after.hidden[i]))
    assert all(alone_too) == (name != "central")


# How it learns


@cache
def update_of(name: str, recurrent: bool):
    """The compiled update."""
    return quick_jit(small(name, recurrent).algorithm.update)


@every_algorithm
def test_an_update_is_finite_changes_the_learner_and_is_always_the_same(name, recurrent):
    learner, batch, key = learner_of(name, recurrent), random_episodes(0, 4), fast_key(0)
    one, metrics = update_of(name, recurrent)(learner, batch, key, STEP)
    again, metrics_too = update_of(name, recurrent)(learner, batch, key, STEP)
    assert same((one, dict(metrics)), (again, dict(metrics_too)))
    assert metrics
    for what, value in metrics.items():
        assert value.shape == (), what
        assert np.isfinite(value), what
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(one.networks))
    assert jax.tree.structure(one) == jax.tree.structure(learner)
    assert int(one.updates) > 0
    for network, before in learner.networks._asdict().items():
        untouched = name == "macpf-control" and network.endswith("_dep")
        stays = untouched or not jax.tree.leaves(before)
        assert same(getattr(one.networks, network), before) == stays, network


def behind_the_end(batch: Trajectory) -> np.ndarray:
    """The rows no loss may look at: those after the end, but for the one a truncated episode goes on in."""
    mask = np.asarray(batch.mask)
    length, row = mask.sum(1, keepdims=True), np.arange(mask.shape[1])
    goes_on = ~np.asarray(batch.terminated).any(1, keepdims=True)
    return (row > length) | ((row == length) & ~goes_on)


def scrambled(batch: Trajectory, rows: np.ndarray, seed: int) -> Trajectory:
    """The batch with other contents in these rows; the mask stays."""
    other = random_episodes(seed, len(rows))

    def pick(old, new):
        there = rows.reshape(*rows.shape, *[1] * (old.ndim - 2))
        return jnp.asarray(np.where(there, new, old))

    return eqx.tree_at(lambda b: b.mask, jax.tree.map(pick, batch, other), batch.mask)


@every_algorithm
@few(3)
@given(seed=seeds)
def test_what_lies_behind_the_end_changes_no_update(name, recurrent, seed):
    learner, batch, key = learner_of(name, recurrent), random_episodes(seed, 4), fast_key(seed)
    update, rows = update_of(name, recurrent), behind_the_end(batch)
    one, metrics = update(learner, batch, key, STEP)
    two, others = update(learner, scrambled(batch, rows, seed + 1), key, STEP)
    assert same((one, dict(metrics)), (two, dict(others)))
    before, _ = update(learner, scrambled(batch, ~rows, seed + 1), key, STEP)
    assert not same(one.networks, before.networks)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_trains_several_seeds_at_once_on_any_task(name):
    """Traced, not run: whatever the task's sizes, with memory, the whole of training fits together."""
    experiment = replace(small(name, recurrent=True), env=macpf.MultiGoal(horizon=T))
    keys = jnp.stack([fast_key(seed) for seed in range(2)])
    state, record = jax.eval_shape(jax.vmap(partial(train, experiment)), keys)
    assert experiment.epochs == 2
    for metric, values in record.metrics.items():
        assert values.shape == (2, 2), metric
    assert set(record.scores) == set(experiment.algorithm.policies)
    assert state.updates.shape == (2,)
    alone = jax.eval_shape(partial(experiment.algorithm.init, spec=experiment.env.spec), fast_key(0))
    for leaf, of_one in zip(jax.tree.leaves(state.learner), jax.tree.leaves(alone), strict=True):
        assert leaf.shape == (2, *of_one.shape)
        assert leaf.dtype == of_one.dtype


# On-policy


class Witness(eqx.Module):
    """What an on-policy learner has met."""

    updates: Int[Array, ""]
    steps: Int[Array, ""]
    fresh: Bool[Array, ""]
    distinct: Bool[Array, ""]


PARALLEL = 3


@dataclass(frozen=True)
class Dated:
    """An on-policy algorithm whose every action is the number of updates made so far."""

    on_policy: ClassVar[bool] = True

    @property
    def policies(self) -> Mapping[str, Policy]:
        return {"ind": self.execute}

    def init(self, key, spec: EnvSpec) -> Witness:
        zero = jnp.zeros((), jnp.int32)
        return Witness(zero, zero, jnp.asarray(True), jnp.asarray(True))

    def init_memory(self, spec: EnvSpec) -> Memory:
        return Memory(jnp.zeros((spec.n_agents, 0)), jnp.full(spec.n_agents, -1))

    def explore(self, learner: Witness, memory: Memory, observation: Observation, key, step):
        return self.execute(learner, memory, observation, key)

    def execute(
        self, learner: Witness, memory: Memory, observation: Observation, key, *, sample: bool = False
    ):
        return jnp.full(observation.avail.shape[0], learner.updates), memory

    def log_prob(self, learner: Witness, memory: Memory, observation: Observation, actions):
        return {"ind": jnp.zeros(())}

    def update(self, learner: Witness, batch: Trajectory, key, step):
        assert batch.mask.shape == (PARALLEL, T + 1)
        by_now = jnp.where(batch.mask[..., None], batch.actions == learner.updates, True)
        first = batch.observation.obs[:, 0, 0, 0]
        same_one = (first[:, None] == first[None]) & ~jnp.eye(PARALLEL, dtype=bool)
        witness = Witness(
            learner.updates + 1,
            learner.steps + jnp.sum(batch.mask, dtype=jnp.int32),
            learner.fresh & jnp.all(by_now) & jnp.all(batch.mask[:, 0]),
            learner.distinct & ~jnp.any(same_one),
        )
        return witness, {}


def dated(**changes: Any) -> Experiment[Any, Any]:
    """An experiment of it."""
    sizes: Any = {"steps": 90, "eval_every": 45, "parallel": PARALLEL, "eval_episodes": 1, "burn_in": 31}
    return Experiment("dated", "noise", Dated(), Noise(), **(sizes | changes))


def test_an_on_policy_algorithm_learns_from_the_episodes_of_the_latest_round_and_no_others():
    experiment = dated()
    state, record = quick_jit(partial(train, experiment))(fast_key(0))
    rounds = experiment.epochs * experiment.iterations_per_epoch
    assert rounds == 6
    assert bool(state.learner.fresh)
    assert bool(state.learner.distinct)
    assert int(state.learner.updates) == int(state.updates) == rounds
    assert int(state.episodes) == PARALLEL * rounds
    assert int(state.learner.steps) == int(state.steps) == int(record.steps[-1])


def test_an_on_policy_algorithm_plays_nothing_before_it_learns():
    state = quick_jit(partial(begin, dated()))(fast_key(0))
    assert int(state.episodes) == int(state.steps) == int(state.replay.added) == 0
    assert state.replay.capacity == PARALLEL


def test_off_policy_settings_do_not_matter_on_policy():
    key = fast_key(0)
    many = {"updates_per_episode": 5, "batch": 7, "replay": 2, "burn_in": 0}
    for changes in ({}, many):
        experiment = dated(**changes)
        state, _ = quick_jit(lambda key, e=experiment: iterate(e, begin(e, key)))(key)
        assert int(state.updates) == 1
        assert int(state.episodes) == PARALLEL


def test_mappo_is_on_policy_and_all_others_learn_from_a_replay():
    assert {name for name, entry in ALGORITHMS.items() if entry.make().on_policy} == {"mappo"}
