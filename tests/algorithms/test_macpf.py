"""What MACPF promises: who is moved by which loss, who may depend on whom, what counts and what does not."""

from dataclasses import replace
from functools import cache, partial
from itertools import product
from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from macpf.algorithms.learning import LearnerState
from macpf.algorithms.macpf import MACPF, Losses, Networks
from macpf.networks.agents import agent_inputs, previous_actions, see, unroll_together
from macpf.networks.mixers import HyperMixer
from macpf.rollout import play
from macpf.schedules import Constant, Linear
from macpf.types import Memory, Observation, Trajectory
from tests.helpers import (
    SPEC,
    STEP,
    Noise,
    close,
    few,
    gradients_of,
    quick_jit,
    random_episode,
    random_episodes,
    random_learner,
    random_observation,
    same,
    seeds,
    tiny,
    update_of,
)

N, A, T = SPEC.n_agents, SPEC.n_actions, SPEC.horizon
JOINT = jnp.asarray(list(product(range(A), repeat=N)))  # all joint actions
PARTS = ("pi_ind.body", "pi_ind.head", "b_dep", "q_ind.body", "q_ind.head", "c_dep", "mixer")

both_bodies = pytest.mark.parametrize("recurrent", [False, True], ids=["feed-forward", "recurrent"])


def parts(networks: Networks) -> dict[str, Any]:
    """The networks by name, agents as trunk and head."""
    return {name: attrgetter(name)(networks) for name in PARTS}


def size(tree: Any) -> float:
    """The largest absolute number of a tree."""
    return max(float(np.max(np.abs(leaf), initial=0.0)) for leaf in jax.tree.leaves(tree))


def memory_and_observation(seed: int, algorithm: MACPF) -> tuple[Memory, Observation]:
    """A random moment in the middle of an episode."""
    rng = np.random.default_rng(seed)
    hidden = rng.uniform(-1, 1, algorithm.init_memory(SPEC).hidden.shape)
    previous = jnp.asarray(rng.integers(-1, A, N), jnp.int32)
    return Memory(jnp.asarray(hidden, jnp.float32), previous), random_observation(rng, ())


# What each loss moves

DEFAULT_TABLE = {
    "j_ind": {"pi_ind.body", "pi_ind.head"},
    "j_dep": {"b_dep"},
    "l_ind": {"q_ind.body", "q_ind.head", "mixer"},
    "l_dep": {"c_dep", "mixer"},
}
THROUGH_TRUNK = DEFAULT_TABLE | {"j_dep": {"b_dep", "pi_ind.body"}, "l_dep": {"c_dep", "mixer", "q_ind.body"}}
MIXER_BY_IND = DEFAULT_TABLE | {"l_dep": {"c_dep"}}

tables = pytest.mark.parametrize(
    ("algorithm", "table"),
    [
        pytest.param(tiny(), DEFAULT_TABLE, id="feed-forward"),
        pytest.param(tiny(recurrent=True), DEFAULT_TABLE, id="recurrent"),
        pytest.param(
            tiny(recurrent=True, dep_grad_through_trunk=True), THROUGH_TRUNK, id="dep_grad_through_trunk"
        ),
        pytest.param(tiny(mixer_grad="ind"), MIXER_BY_IND, id="mixer_grad=ind"),
    ],
)


@tables
@few(4)
@given(seed=seeds)
def test_a_loss_has_a_gradient_for_what_it_moves_and_none_for_the_rest(algorithm, table, seed):
    learner, batch = random_learner(algorithm, seed), random_episodes(seed, 3)
    gradients = gradients_of(algorithm)(learner, batch, jax.random.key(seed))
    for row, loss in enumerate(Losses._fields):
        for argument, networks in zip(Losses._fields, gradients, strict=True):
            moved = table[loss] if argument == loss else set()
            for name, part in parts(networks).items():
                gradient = size(jax.tree.map(lambda leaf, row=row: leaf[row], part))
                assert (gradient > 0) == (name in moved), (loss, argument, name, gradient)


@tables
def test_the_gradient_reaches_every_parameter_of_what_it_moves(algorithm, table):
    reached: dict[tuple[str, str, int], bool] = {}
    for seed in range(4):
        learner, batch = random_learner(algorithm, seed), random_episodes(seed, 3)
        gradients = gradients_of(algorithm)(learner, batch, jax.random.key(seed))
        for row, loss in enumerate(Losses._fields):
            for name in table[loss]:
                for at, leaf in enumerate(jax.tree.leaves(parts(getattr(gradients, loss))[name])):
                    place = (loss, name, at)
                    reached[place] = reached.get(place, False) or size(leaf[row]) > 0
    assert all(reached.values()), [place for place, is_reached in reached.items() if not is_reached]


def nudged(learner: LearnerState, name: str) -> LearnerState:
    """The learner with other numbers in one of its networks."""
    networks = learner.networks._asdict()
    changed = jax.tree.map(
        lambda leaf: leaf + 0.3 * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape), networks[name]
    )
    return LearnerState(
        Networks(**(networks | {name: changed})), learner.targets, learner.optimisers, learner.updates
    )


def _elsewhere(leaf):
    return leaf + 0.3 * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape)


def moves(before: LearnerState, after: LearnerState) -> dict[str, Any]:
    """How far an update moved each part."""
    return parts(jax.tree.map(lambda new, old: new - old, after.networks, before.networks))


@tables
@pytest.mark.parametrize(
    ("nudge", "losses"),
    [("b_dep", {"j_dep", "l_dep"}), ("c_dep", {"j_dep", "l_dep"}), ("pi_ind", set(Losses._fields))],
)
def test_an_update_moves_each_part_by_its_own_losses_alone(algorithm, table, nudge, losses):
    """What a network's change does to the losses shows in what those losses move, nowhere else."""
    batch, key = random_episodes(1, 3), jax.random.key(1)
    learner = random_learner(algorithm, 1)
    other = nudged(learner, nudge)
    one, two = (moves(start, update_of(algorithm)(start, batch, key, STEP)[0]) for start in (learner, other))
    affected = set().union(*(table[loss] for loss in losses))
    for name in PARTS:
        if not name.startswith(nudge):  # its own numbers differ, so do the last bits of its step
            assert same(one[name], two[name]) == (name not in affected), name


@tables
def test_an_update_moves_every_part(algorithm, table):
    learner = random_learner(algorithm, 2)
    after, _ = update_of(algorithm)(learner, random_episodes(2, 3), jax.random.key(2), STEP)
    assert all(size(part) > 0 for part in moves(learner, after).values())


# The chain


@cache
def dependent_logits_of(algorithm: MACPF):
    """The dependent logits after every joint action: [A^N, N, A]."""

    def logits(learner: LearnerState, memory: Memory, observation: Observation):
        chain, _, _ = algorithm._chain_now(learner.networks, memory, observation)
        return jax.vmap(chain)(JOINT)

    return quick_jit(logits)


@cache
def dependent_values_of(algorithm: MACPF):
    """The dependent value of every agent's own action, after every joint action: [A^N, N].

    Seen from outside: without a future and without a reward L_dep is the square of the joint value, and
    a mixer may be one that hears a single agent.
    """
    blind = replace(algorithm, gamma=0.0)

    def value(learner: LearnerState, episode: Trajectory, actions, agent):
        mixer = _hears(learner.networks.mixer, agent)
        networks = learner.networks._replace(mixer=mixer)
        episode = eqx.tree_at(
            lambda e: (e.actions, e.reward),
            episode,
            (episode.actions.at[0].set(actions), jnp.zeros_like(episode.reward)),
        )
        by = Losses(*[networks] * 4)
        losses, _ = blind.losses(by, learner.targets, episode, jax.random.key(0), STEP)
        return jnp.sqrt(losses.l_dep[0])

    over_agents = jax.vmap(value, in_axes=(None, None, None, 0))
    over_actions = jax.vmap(over_agents, in_axes=(None, None, 0, None))
    return quick_jit(lambda learner, episode: over_actions(learner, episode, JOINT, jnp.arange(N)))


def _hears(mixer: HyperMixer, agent) -> HyperMixer:
    """A mixer whose output is the value of one agent."""
    zero = jax.tree.map(jnp.zeros_like, mixer)
    ear = jnp.zeros((N, mixer.b1.out_features)).at[agent, 0].set(1.0)
    return eqx.tree_at(
        lambda m: (m.w1.layers[-1].bias, m.w2.layers[-1].bias),
        zero,
        (ear.ravel(), jnp.ones_like(zero.w2.layers[-1].bias)),
    )


def influences(outputs: Any) -> np.ndarray:
    """Entry [i, j]: does agent i's output ([A^N, N, ...]) ever change with agent j's action alone?"""
    table = np.asarray(outputs).reshape(*[A] * N, N, -1)
    ranges = [np.ptp(table, axis=j, keepdims=True) for j in range(N)]
    return np.stack([np.any(changes != 0, axis=(*range(N), -1)) for changes in ranges], axis=1)


BEFORE = np.tril(np.ones((N, N), bool), -1)
GROUPED = np.array([[0, 0, 0], [0, 0, 0], [1, 1, 0]], bool)  # two groups of three agents: 0 and 1, then 2


@pytest.mark.parametrize(
    ("algorithm", "order"),
    [
        pytest.param(tiny(), BEFORE, id="feed-forward"),
        pytest.param(tiny(recurrent=True), BEFORE, id="recurrent"),
        pytest.param(tiny(dep_mask="all"), BEFORE, id="all"),
        pytest.param(tiny(groups=2), GROUPED, id="groups"),
    ],
)
@few(8)
@given(seed=seeds)
def test_dependent_logits_depend_on_visible_predecessors_alone(algorithm, order, seed):
    learner = random_learner(algorithm, seed)
    memory, observation = memory_and_observation(seed, algorithm)
    logits = dependent_logits_of(algorithm)(learner, memory, observation)
    seen = order & np.asarray(observation.visible) if algorithm.dep_mask == "visible" else order
    np.testing.assert_array_equal(influences(logits), seen)


@pytest.mark.parametrize(
    ("algorithm", "order"),
    [
        pytest.param(tiny(), BEFORE, id="feed-forward"),
        pytest.param(tiny(recurrent=True), BEFORE, id="recurrent"),
        pytest.param(tiny(dep_mask="all", groups=2), GROUPED, id="all-groups"),
    ],
)
@few(5)
@given(seed=seeds)
def test_dependent_values_depend_on_visible_predecessors_alone(algorithm, order, seed):
    learner, episode = random_learner(algorithm, seed), random_episode(seed)
    values = dependent_values_of(algorithm)(learner, episode)
    visible = np.asarray(episode.observation.visible[0])
    seen = order & visible if algorithm.dep_mask == "visible" else order
    others = ~np.eye(N, dtype=bool)  # the value is that of the own action, and changes with it
    np.testing.assert_array_equal(influences(values) & others, seen & others)


# Decentralised execution


@both_bodies
@few(8)
@given(seed=seeds)
def test_independent_logits_are_a_function_of_what_the_agent_itself_has_seen(recurrent, seed):
    algorithm = tiny(recurrent=recurrent)
    learner = random_learner(algorithm, seed)
    memory, observation = memory_and_observation(seed, algorithm)
    by_obs, by_state, by_hidden = jacobians_of(algorithm)(learner, memory, observation)
    others = ~np.eye(N, dtype=bool)
    of_pairs = np.abs(np.asarray(by_obs)).sum((1, 3))
    assert np.all(of_pairs[others] == 0)
    assert np.all(of_pairs[~others] > 0)
    assert np.all(np.asarray(by_state) == 0)
    assert np.all(np.abs(np.asarray(by_hidden)).sum((1, 3))[others] == 0)


@cache
def jacobians_of(algorithm: MACPF):
    """How the independent logits change with all observations, with the state, with all memories."""

    def logits(learner, obs, state, hidden, previous, observation):
        seen = Observation(obs, state, observation.avail, observation.visible)
        return see(learner.networks.pi_ind, Memory(hidden, previous), seen)[0]

    def jacobians(learner: LearnerState, memory: Memory, observation: Observation):
        at = (observation.obs, observation.state, memory.hidden)
        return jax.jacrev(logits, argnums=(1, 2, 3))(learner, *at, memory.previous, observation)

    return quick_jit(jacobians)


@cache
def execute_of(algorithm: MACPF):
    """Greedy and sampled actions of the independent policy, and the memory after it."""

    def execute(learner, memory, observation, key):
        greedy, after = algorithm.execute(learner, memory, observation, key)
        sampled, _ = algorithm.execute(learner, memory, observation, key, sample=True)
        return greedy, sampled, after.hidden

    return quick_jit(execute)


@both_bodies
@few(15)
@given(seed=seeds)
def test_an_agent_executes_the_same_whatever_the_others_see(recurrent, seed):
    algorithm = tiny(recurrent=recurrent)
    learner, key = random_learner(algorithm, seed), jax.random.key(seed)
    memory, observation = memory_and_observation(seed, algorithm)
    elsewhere, strange = memory_and_observation(seed + 1, algorithm)
    alone = execute_of(algorithm)(learner, memory, observation, key)
    for i in range(N):
        own = np.arange(N) == i
        mixed = Observation(
            jnp.where(own[:, None], observation.obs, strange.obs),
            strange.state,
            jnp.where(own[:, None], observation.avail, strange.avail),
            strange.visible,
        )
        remembered = Memory(
            jnp.where(own[:, None], memory.hidden, elsewhere.hidden),
            jnp.where(own, memory.previous, elsewhere.previous),
        )
        crowd = execute_of(algorithm)(learner, remembered, mixed, key)
        assert all(np.array_equal(a[i], b[i]) for a, b in zip(alone, crowd, strict=True))


# What is learned from is what was done


@both_bodies
def test_logits_of_a_stored_episode_are_those_of_its_rollout(recurrent):
    algorithm = tiny(recurrent=recurrent)
    learner = random_learner(algorithm, 0)
    met: list[np.ndarray] = []

    def act(memory, observation, key):
        logits, _, _ = see(learner.networks.pi_ind, memory, observation)
        jax.debug.callback(lambda rows: met.append(np.asarray(rows)), logits, ordered=True)
        return algorithm.explore(learner, memory, observation, key, STEP)

    @jax.jit
    def rollout(key):
        return play(Noise(), act, algorithm.init_memory(SPEC), key)

    @jax.jit
    def replayed(episode: Trajectory):
        xs = agent_inputs(episode.observation.obs, previous_actions(episode.actions), A)
        (features,) = unroll_together([learner.networks.pi_ind.body], xs)
        return jax.vmap(jax.vmap(learner.networks.pi_ind.head))(features)

    lengths = set()
    for key in jax.random.split(jax.random.key(3), 12):
        met.clear()
        episode = rollout(key)
        jax.effects_barrier()
        assert len(met) == T
        np.testing.assert_allclose(replayed(episode)[:-1], np.stack(met), rtol=1e-5, atol=1e-6)
        lengths.add(int(episode.mask.sum()))
    assert {1, T} <= lengths  # early ends were met


# Ends


one_step = tiny(td_lambda=0.0, gamma=0.9)
target = jax.jit(partial(one_step.target, alpha=jnp.asarray(0.3)))


@few(25)
@given(seed=seeds)
def test_a_truncated_episode_is_worth_its_future_more_than_a_terminated_one(seed):
    rng = np.random.default_rng(seed)
    episode = random_episode(seed)
    last = int(episode.mask.sum()) - 1
    value = jnp.asarray(rng.normal(size=T + 1), jnp.float32)
    log_pi = jnp.asarray(-rng.random((T + 1, N)), jnp.float32)
    ended = [
        eqx.tree_at(lambda e: e.terminated, episode, jnp.arange(T + 1) == (last if terminated else -1))
        for terminated in (True, False)
    ]
    terminated, truncated = (np.asarray(target(e, value, log_pi)) for e in ended)
    future = 0.9 * (value[last + 1] - 0.3 * log_pi[last + 1].mean())
    np.testing.assert_allclose(truncated[last] - terminated[last], future, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(terminated[last], episode.reward[last], rtol=1e-6)
    np.testing.assert_array_equal(truncated[:last], terminated[:last])


# Masks


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
        return jnp.where(rows.reshape(*rows.shape, *[1] * (old.ndim - 2)), new, old)

    return eqx.tree_at(lambda b: b.mask, jax.tree.map(pick, batch, other), batch.mask)


@both_bodies
@few(6)
@given(seed=seeds)
def test_what_lies_behind_the_end_changes_no_update(recurrent, seed):
    algorithm = tiny(recurrent=recurrent)
    learner, batch, key = random_learner(algorithm, seed), random_episodes(seed, 3), jax.random.key(seed)
    rows = behind_the_end(batch)
    other = scrambled(batch, rows, seed + 1)
    one, metrics = update_of(algorithm)(learner, batch, key, STEP)
    two, others = update_of(algorithm)(learner, other, key, STEP)
    assert same(one, two)
    assert same(dict(metrics), dict(others))


@both_bodies
def test_what_lies_before_the_end_changes_the_update(recurrent):
    algorithm = tiny(recurrent=recurrent)
    learner, batch, key = random_learner(algorithm, 5), random_episodes(5, 3), jax.random.key(5)
    one, _ = update_of(algorithm)(learner, batch, key, STEP)
    for row in np.argwhere(~behind_the_end(batch)):
        rows = np.zeros(batch.mask.shape, bool)
        rows[tuple(row)] = True
        two, _ = update_of(algorithm)(learner, scrambled(batch, rows, 6), key, STEP)
        assert not same(one.networks, two.networks), row


@cache
def log_probs_of(algorithm: MACPF):
    """The log-probability of every joint action under both policies."""

    def log_probs(learner, memory, observation):
        return jax.vmap(lambda actions: algorithm.log_prob(learner, memory, observation, actions))(JOINT)

    return quick_jit(log_probs)


@both_bodies
@few(10)
@given(seed=seeds)
def test_both_policies_are_distributions_over_available_joint_actions(recurrent, seed):
    algorithm = tiny(recurrent=recurrent)
    learner = random_learner(algorithm, seed)
    memory, observation = memory_and_observation(seed, algorithm)
    possible = np.take_along_axis(np.asarray(observation.avail)[None], np.asarray(JOINT)[..., None], -1).all(
        (1, 2)
    )
    for name, log_prob in log_probs_of(algorithm)(learner, memory, observation).items():
        probs = np.exp(np.asarray(log_prob, np.float64))
        np.testing.assert_allclose(probs.sum(), 1, rtol=1e-5, err_msg=name)
        assert np.all(probs[~possible] == 0), name
        assert np.all(probs[possible] > 0), name


# Target networks


def test_targets_are_copied_at_every_period_th_update_and_only_then():
    algorithm = tiny(target_period=3)
    learner, batch = random_learner(algorithm, 7), random_episodes(7, 3)
    for count in range(1, 8):
        before = learner.targets
        learner, _ = update_of(algorithm)(learner, batch, jax.random.key(count), STEP)
        networks = learner.networks
        online = (networks.q_ind, networks.c_dep, networks.mixer)
        assert int(learner.updates) == count
        for old, target, new in zip(before, learner.targets, online, strict=True):
            assert same(target, new) == (count % 3 == 0)
            assert same(target, old) == (count % 3 != 0)


# Temperature


def test_the_temperature_is_that_of_the_step():
    falling, constant = tiny(alpha=Linear(0.5, 0.1, 100)), tiny(alpha=Constant(0.3))
    learner, batch, key = random_learner(constant, 8), random_episodes(8, 3), jax.random.key(8)
    expected, _ = update_of(constant)(learner, batch, key, STEP)
    updated, metrics = update_of(falling)(learner, batch, key, STEP + 50)
    earlier, _ = update_of(falling)(learner, batch, key, STEP)
    assert close(updated.networks, expected.networks)
    assert not close(earlier.networks, expected.networks)
    np.testing.assert_allclose(metrics["alpha"], 0.3, rtol=1e-6)
