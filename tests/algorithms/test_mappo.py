"""MAPPO: what it thinks of the episodes just played, and how far it lets itself be moved by them."""

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from macpf import optim
from macpf.algorithms.mappo import MAPPO, MAPPOLearner, Networks, Rollout, Scale, huber
from macpf.errors import UserError
from macpf.maths import log_softmax, taken
from macpf.networks.agents import agent_inputs, previous_actions
from macpf.networks.normed import Normed
from macpf.optim import Adam
from macpf.rollout import play
from macpf.types import Trajectory
from tests.helpers import SPEC, STEP, Noise, close, few, quick_jit, random_episodes, same, seeds

N, A, T = SPEC.n_agents, SPEC.n_actions, SPEC.horizon

both_bodies = pytest.mark.parametrize("recurrent", [False, True], ids=["feed-forward", "recurrent"])


def small(**options: Any) -> MAPPO:
    """MAPPO with few units that takes large steps, and is not rewarded for its entropy."""
    defaults = {"recurrent": False, "hidden": 8, "layers": 1, "chunk": 2, "ppo_epochs": 3}
    defaults |= {"optimiser": Adam(lr=1e-2, clip=0.05), "entropy_bonus": 0.0, "huber": 0.5, "value_beta": 0.5}
    return MAPPO(**(defaults | options))


FEED_FORWARD, RECURRENT = small(), small(recurrent=True)


@cache
def _shapes(recurrent: bool) -> MAPPOLearner:
    return jax.eval_shape(lambda key: small(recurrent=recurrent).init(key, SPEC), jax.random.key(0))


def random_learner(algorithm: MAPPO, seed: int) -> MAPPOLearner:
    """A learner with sizeable parameters that has seen returns before."""
    rng = np.random.default_rng(seed)
    shapes = _shapes(algorithm.recurrent)
    networks = jax.tree.map(
        lambda x: jnp.asarray(0.5 * rng.standard_normal(x.shape), x.dtype), shapes.networks
    )
    optimisers = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes.optimisers)
    scale = Scale(jnp.asarray(0.3), jnp.asarray(2.0), jnp.asarray(0.6))
    return MAPPOLearner(networks, optimisers, scale, jnp.zeros((), jnp.int32))


def played(seed: int, batch: int) -> Trajectory:
    """Random episodes, in which every agent is without a choice in one first row at least."""
    episodes = random_episodes(seed, batch)
    where = (jnp.arange(N) % batch, 0, jnp.arange(N))
    alone = jax.nn.one_hot(episodes.actions[where], A, dtype=bool)
    avail = episodes.observation.avail.at[where].set(alone)
    return eqx.tree_at(lambda e: e.observation.avail, episodes, avail)


@cache
def judge_of(algorithm: MAPPO):
    """The compiled judgement."""
    return quick_jit(algorithm.judge)


@cache
def loss_of(algorithm: MAPPO):
    """The loss and its parts, and its gradient."""
    return quick_jit(jax.value_and_grad(algorithm.loss, has_aux=True))


@cache
def update_of(algorithm: MAPPO):
    """The compiled update."""
    return quick_jit(algorithm.update)


def flat(pieces: Any) -> np.ndarray:
    """The rows [B, T, ...] of what was cut into pieces, without the padding behind the last."""
    array = np.asarray(pieces)
    return array.reshape(array.shape[0], -1, *array.shape[3:])[:, :T]


def size(tree: Any) -> float:
    """The largest absolute number of a tree."""
    return max(float(np.max(np.abs(leaf), initial=0.0)) for leaf in jax.tree.leaves(tree))


def choices(batch: Trajectory) -> np.ndarray:
    """Which agents had a choice in which real rows [B, T, N]."""
    several = np.asarray(batch.observation.avail).sum(-1) > 1
    return (several & np.asarray(batch.mask)[..., None])[:, :-1]


# What is thought of the episodes


def telling(recurrent: bool):
    """Everything the networks say of an episode, one call after the other: log-policies and values."""

    def say(networks: Networks, episode: Trajectory) -> tuple[jax.Array, jax.Array]:
        seen = episode.observation
        xs = agent_inputs(seen.obs, previous_actions(episode.actions), A)
        states = jnp.broadcast_to(seen.state[:, None], (T + 1, N, SPEC.state_dim))
        told = jnp.concatenate([states, xs], axis=-1)
        told = jnp.where((jnp.sum(seen.avail, -1) > 1)[..., None], told, 0.0)

        def walk(network: Normed, rows: jax.Array) -> jax.Array:
            def step(hidden, x):
                out, hidden = jax.vmap(network)(x, hidden)
                return hidden, out

            return jax.lax.scan(step, jnp.zeros((N, 8 if recurrent else 0)), rows)[1]

        log_pi = log_softmax(walk(networks.pi, xs), seen.avail)
        return log_pi, walk(networks.v, told)[..., 0]

    return jax.vmap(say, in_axes=(None, 0))


@cache
def told_by(recurrent: bool):
    """The same, compiled."""
    return quick_jit(telling(recurrent))


def judged_by_hand(learner: MAPPOLearner, batch: Trajectory, values: np.ndarray):
    """Normalised advantages and returns, by loops over steps and agents."""
    mean = float(learner.scale.mean / learner.scale.weight)
    std = np.sqrt(float(learner.scale.square / learner.scale.weight) - mean**2)
    worth = np.asarray(values, float) * std + mean
    advantage = np.zeros((len(worth), T, N))
    for b, length in enumerate(np.asarray(batch.mask).sum(1)):
        for i in range(N):
            later = 0.0
            for t in reversed(range(length)):
                on = 0.99 * (1 - float(batch.terminated[b, t]))
                later = (
                    float(batch.reward[b, t]) + on * worth[b, t + 1, i] - worth[b, t, i] + on * 0.95 * later
                )
                advantage[b, t, i] = later
    chosen = advantage[choices(batch)]
    return (advantage - chosen.mean()) / (chosen.std() + 1e-5), advantage + worth[:, :-1]


@both_bodies
@few(4)
@given(seed=seeds)
def test_episodes_are_judged_as_by_hand(recurrent, seed):
    algorithm = small(recurrent=recurrent)
    learner, batch = random_learner(algorithm, seed), played(seed, 4)
    log_pi, values = told_by(recurrent)(learner.networks, batch)
    rollout = judge_of(algorithm)(learner, batch)
    advantage, returns = judged_by_hand(learner, batch, np.asarray(values))
    mask = np.asarray(batch.mask)[:, :-1]
    assert_array_equal(flat(rollout.mask), np.repeat(mask[..., None], N, axis=-1))
    assert_array_equal(flat(rollout.choice), choices(batch))
    assert_allclose(flat(rollout.advantage)[mask], advantage[mask], rtol=1e-3, atol=1e-3)
    assert_allclose(flat(rollout.returns)[mask], returns[mask], rtol=1e-4, atol=1e-3)
    assert_allclose(flat(rollout.value), np.asarray(values)[:, :-1], rtol=1e-4, atol=1e-4)
    assert_allclose(flat(rollout.log_pi), taken(log_pi, batch.actions)[:, :-1], rtol=1e-4, atol=1e-4)


@few(4)
@given(seed=seeds)
def test_advantages_are_normalised_over_those_with_a_choice(seed):
    rollout = judge_of(FEED_FORWARD)(random_learner(FEED_FORWARD, seed), played(seed, 4))
    choice, mask = np.asarray(rollout.choice), np.asarray(rollout.mask)
    assert (mask & ~choice).any()
    chosen = np.asarray(rollout.advantage)[choice]
    assert_allclose([chosen.mean(), chosen.std()], [0, 1], atol=1e-4)
    assert abs(np.asarray(rollout.advantage)[mask].mean()) > 1e-4


@both_bodies
def test_the_policy_that_played_is_the_one_recomputed(recurrent):
    algorithm = small(recurrent=recurrent)
    learner = random_learner(algorithm, 0)
    met: list[np.ndarray] = []

    def act(memory, observation, key):
        actions, after = algorithm.explore(learner, memory, observation, key, STEP)
        log_prob = algorithm.log_prob(learner, memory, observation, actions)["ind"]
        jax.debug.callback(lambda x: met.append(np.asarray(x)), log_prob, ordered=True)
        return actions, after

    rollout = quick_jit(lambda key: play(Noise(), act, algorithm.init_memory(SPEC), key))
    episodes = [rollout(key) for key in jax.random.split(jax.random.key(3), 6)]
    jax.effects_barrier()
    batch = jax.tree.map(lambda *rows: jnp.stack(rows), *episodes)
    log_pi = flat(judge_of(algorithm)(learner, batch).log_pi).sum(-1)
    mask = np.asarray(batch.mask)[:, :-1]
    assert_allclose(log_pi[mask], np.stack(met).reshape(6, T)[mask], rtol=1e-4, atol=1e-4)
    assert mask[:, -1].any()


# Agents without a choice


@few(4)
@given(seed=seeds)
def test_the_critic_is_told_nothing_of_an_agent_without_a_choice(seed):
    batch = played(seed, 4)
    told = flat(judge_of(FEED_FORWARD)(random_learner(FEED_FORWARD, seed), batch).xs_v)
    several = np.asarray(batch.observation.avail)[:, :-1].sum(-1) > 1
    assert not several.all()
    assert (told[~several] == 0).all()
    states = np.broadcast_to(np.asarray(batch.observation.state)[:, :-1, None], (4, T, N, SPEC.state_dim))
    assert_array_equal(told[several][:, : SPEC.state_dim], states[several])


def test_what_an_agent_without_a_choice_sees_changes_no_update():
    learner, batch = random_learner(FEED_FORWARD, 1), played(1, 4)
    several = np.asarray(batch.observation.avail).sum(-1, keepdims=True) > 1
    update, key = update_of(FEED_FORWARD), jax.random.key(1)
    one, _ = update(learner, batch, key, STEP)
    for rows, unchanged in ((~several, True), (several, False)):
        obs = jnp.where(rows, 7.0, batch.observation.obs)
        other = eqx.tree_at(lambda b: b.observation.obs, batch, obs)
        assert close(update(learner, other, key, STEP)[0].networks, one.networks) == unchanged


def with_numbers(part: Rollout, where: np.ndarray, **values: float) -> Rollout:
    """The rollout with other numbers in some entries."""
    changed = {name: jnp.where(where, x, getattr(part, name)) for name, x in values.items()}
    return part._replace(**changed)


def test_agents_without_a_choice_do_not_count_in_the_policys_loss():
    learner = random_learner(FEED_FORWARD, 2)
    part = judge_of(FEED_FORWARD)(learner, played(2, 4))
    forced = np.asarray(part.mask & ~part.choice)
    assert forced.any()
    (_, metrics), gradient = loss_of(FEED_FORWARD)(learner.networks, learner.scale, part)
    for where, unchanged in ((forced, True), (np.asarray(part.choice), False)):
        other = with_numbers(part, where, advantage=3.0, log_pi=-1.5)
        (_, others), moved = loss_of(FEED_FORWARD)(learner.networks, learner.scale, other)
        assert (metrics["policy_gain"] == others["policy_gain"]) == unchanged
        assert close(gradient.pi, moved.pi) == unchanged
        assert metrics["value_loss"] == others["value_loss"]


def test_agents_without_a_choice_count_in_the_values_loss():
    learner = random_learner(FEED_FORWARD, 2)
    part = judge_of(FEED_FORWARD)(learner, played(2, 4))
    other = with_numbers(part, np.asarray(part.mask & ~part.choice), returns=9.0)
    losses = [loss_of(FEED_FORWARD)(learner.networks, learner.scale, p)[0][1] for p in (part, other)]
    assert abs(losses[0]["value_loss"] - losses[1]["value_loss"]) > 1e-3


def test_what_the_mask_leaves_out_changes_no_loss():
    learner = random_learner(RECURRENT, 3)
    part = judge_of(RECURRENT)(learner, played(3, 4))
    (loss, metrics), gradient = loss_of(RECURRENT)(learner.networks, learner.scale, part)
    numbers = {"advantage": 3.0, "log_pi": -1.5, "value": 8.0, "returns": 9.0}
    for where, unchanged in ((~np.asarray(part.mask), True), (np.asarray(part.mask), False)):
        other = with_numbers(part, where, **numbers)
        (loss_too, metrics_too), gradient_too = loss_of(RECURRENT)(learner.networks, learner.scale, other)
        assert same((loss, metrics, gradient), (loss_too, metrics_too, gradient_too)) == unchanged


# The loss of the policy


@both_bodies
@few(3)
@given(seed=seeds)
def test_at_first_the_loss_is_the_policy_gradient(recurrent, seed):
    """Nothing has moved yet, the ratio is 1: no gain, and the slope of E[A log pi]."""
    algorithm = small(recurrent=True, chunk=T) if recurrent else FEED_FORWARD
    learner, batch = random_learner(algorithm, seed), played(seed, 4)
    part = judge_of(algorithm)(learner, batch)
    (_, metrics), gradient = loss_of(algorithm)(learner.networks, learner.scale, part)
    assert abs(float(metrics["policy_gain"])) < 1e-5
    expected = _policy_gradient(recurrent)(learner.networks, batch, flat(part.advantage), choices(batch))
    assert close(gradient.pi, expected.pi, tolerance=1e-4)
    assert size(gradient.pi) > 1e-3


@cache
def _policy_gradient(recurrent: bool):
    """The gradient of -E[A log pi] over whole episodes."""

    def loss(networks: Networks, batch: Trajectory, advantage, choice):
        log_pi, _ = telling(recurrent)(networks, batch)
        rows = taken(log_pi, batch.actions)[:, :-1] * advantage
        return -jnp.sum(jnp.where(choice, rows, 0.0)) / jnp.sum(choice)

    return quick_jit(jax.grad(loss))


def moved_away(seed: int, ratios: np.ndarray) -> tuple[MAPPOLearner, Trajectory, Rollout]:
    """A rollout whose policy was such that the probability of every action has changed by these ratios."""
    learner, batch = random_learner(FEED_FORWARD, seed), played(seed, 4)
    part = judge_of(FEED_FORWARD)(learner, batch)
    return learner, batch, part._replace(log_pi=part.log_pi - jnp.log(jnp.asarray(ratios, jnp.float32)))


@few(5)
@given(seed=seeds)
def test_the_gain_is_clipped_where_it_is_enough(seed):
    rng = np.random.default_rng(seed)
    ratios = rng.choice([0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 2.0], (4, 1, T, N))
    learner, batch, part = moved_away(seed, ratios)
    (_, metrics), gradient = loss_of(FEED_FORWARD)(learner.networks, learner.scale, part)
    advantage, choice = np.asarray(part.advantage, float), np.asarray(part.choice)
    gains = np.minimum(ratios * advantage, np.clip(ratios, 0.8, 1.2) * advantage)
    assert_allclose(metrics["policy_gain"], gains[choice].mean(), rtol=1e-4, atol=1e-5)
    enough = np.where(advantage > 0, ratios > 1.2, ratios < 0.8)
    slopes = np.where(enough, 0.0, ratios * advantage)
    expected = _policy_gradient(False)(
        learner.networks, batch, flat(slopes).astype(np.float32), choices(batch)
    )
    assert (enough & choice).any()
    assert (~enough & choice).any()
    assert close(gradient.pi, expected.pi, tolerance=1e-4)


@pytest.mark.parametrize(
    ("ratio", "sign", "moves"), [(1.5, 1, False), (1.5, -1, True), (0.5, 1, True), (0.5, -1, False)]
)
def test_beyond_the_clip_nothing_draws_further(ratio, sign, moves):
    learner, _, part = moved_away(4, np.full((4, 1, T, N), ratio))
    part = part._replace(advantage=sign * jnp.abs(part.advantage))
    _, gradient = loss_of(FEED_FORWARD)(learner.networks, learner.scale, part)
    assert (size(gradient.pi) > 0) == moves


def test_the_clip_is_an_option():
    learner, _, part = moved_away(4, np.full((4, 1, T, N), 1.5))
    part = part._replace(advantage=jnp.abs(part.advantage))
    wide = replace(FEED_FORWARD, clip=0.6)
    assert size(loss_of(wide)(learner.networks, learner.scale, part)[1].pi) > 0


def test_entropy_is_rewarded():
    learner, batch = random_learner(FEED_FORWARD, 5), played(5, 4)
    part = judge_of(FEED_FORWARD)(learner, batch)
    log_pi = np.asarray(told_by(False)(learner.networks, batch)[0], float)[:, :-1]
    p = np.exp(log_pi)
    expected = -(p * np.where(p > 0, log_pi, 0)).sum(-1)[choices(batch)].mean()
    for bonus in (0.0, 0.7):
        algorithm = replace(FEED_FORWARD, entropy_bonus=bonus)
        (loss, metrics), _ = loss_of(algorithm)(learner.networks, learner.scale, part)
        assert_allclose(metrics["entropy_ind"], expected, rtol=1e-4)
        without = metrics["value_loss"] - metrics["policy_gain"]
        assert_allclose(loss - without, -bonus * expected, rtol=1e-3, atol=1e-5)


# The loss of the value


def test_huber_by_hand():
    errors = jnp.asarray([0.0, 1.0, -2.0, 3.0, -5.0])
    assert_allclose(huber(errors, 2.0), [0.0, 0.5, 2.0, 4.0, 8.0])
    slopes = jax.vmap(jax.grad(lambda e: huber(e, 2.0)))(errors)
    assert_allclose(slopes, [0.0, 1.0, -2.0, 2.0, -2.0])


@few(5)
@given(seed=seeds)
def test_the_values_loss_is_the_larger_of_two_huber_losses_of_normalised_returns(seed):
    rng = np.random.default_rng(seed)
    algorithm = FEED_FORWARD
    learner, batch = random_learner(algorithm, seed), played(seed, 4)
    part = judge_of(algorithm)(learner, batch)
    value = np.asarray(part.value, float)
    before = value + rng.uniform(-0.6, 0.6, value.shape)
    returns = 0.5 + 3 * rng.standard_normal(value.shape)
    part = part._replace(value=jnp.asarray(before, jnp.float32), returns=jnp.asarray(returns, jnp.float32))
    (_, metrics), _ = loss_of(algorithm)(learner.networks, learner.scale, part)
    mean, std = 0.5, np.sqrt(2 / 0.6 - 0.5**2)

    def loss(value: np.ndarray) -> np.ndarray:
        error = np.abs((returns - mean) / std - value)
        return np.where(error <= 0.5, error**2 / 2, 0.5 * error - 0.125)

    near = before + np.clip(value - before, -0.2, 0.2)
    expected = np.maximum(loss(value), loss(near))[np.asarray(part.mask)].mean()
    assert_allclose(metrics["value_loss"], expected, rtol=1e-4)


# The scale of the returns


def test_the_scale_by_hand():
    """With a half of forgetting: 1 and 3 first, then 5, and what does not count."""
    scale = Scale(*(jnp.zeros(()) for _ in range(3)))
    assert_allclose(scale.moments, [0.0, 0.1])
    scale = scale.add(jnp.asarray([1.0, 3.0]), jnp.asarray([True, True]), 0.5)
    assert_allclose(scale.moments, [2.0, 1.0], rtol=1e-6)
    scale = scale.add(jnp.asarray([5.0, 99.0]), jnp.asarray([True, False]), 0.5)
    mean, square = (2 * 1 + 5 * 2) / 3, (5 * 1 + 25 * 2) / 3  # weights 1/4 and 1/2 of 3/4
    assert_allclose(scale.moments, [mean, np.sqrt(square - mean**2)], rtol=1e-6)


def test_the_scale_is_no_smaller_than_a_tenth():
    scale = Scale(*(jnp.zeros(()) for _ in range(3)))
    for _ in range(3):
        scale = scale.add(jnp.full(4, 7.0), jnp.ones(4, bool), 0.99)
    assert_allclose(scale.moments, [7.0, 0.1], rtol=1e-4)


@few(10)
@given(seed=seeds, beta=st.sampled_from([0.0, 0.9, 0.999]))
def test_the_scale_is_a_weighted_mean_of_what_was_added(seed, beta):
    values = np.random.default_rng(seed).normal(2, 3, (4, 6))
    scale = Scale(*(jnp.zeros(()) for _ in range(3)))
    for row in values:
        scale = scale.add(jnp.asarray(row, jnp.float32), jnp.ones(6, bool), beta)
    weights = np.repeat(beta ** np.arange(3, -1, -1.0), 6)
    mean = np.average(values.ravel(), weights=weights)
    std = np.sqrt(np.average((values.ravel() - mean) ** 2, weights=weights))
    assert_allclose(scale.moments, [mean, std], rtol=2e-2)


# Pieces


@both_bodies
def test_the_loss_of_the_policy_that_played_does_not_depend_on_the_pieces(recurrent):
    learner, batch = random_learner(small(recurrent=recurrent), 6), played(6, 4)
    found = []
    for chunk in (2, 3, T, 10) if recurrent else (2, 10):
        algorithm = small(recurrent=recurrent, chunk=chunk)
        part = judge_of(algorithm)(learner, batch)
        pieces = -(-T // min(chunk, T)) if recurrent else 1
        assert part.mask.shape[1] == pieces
        assert int(part.mask.sum()) == N * int(batch.mask.sum())
        found.append(loss_of(algorithm)(learner.networks, learner.scale, part))
    (loss, metrics), whole = found[-1]
    for (other, others), _ in found:
        assert close((loss, metrics), (other, others), tolerance=1e-4)
    gradients = [gradient for _, gradient in found]
    same_as_whole = [close(gradient, whole, tolerance=1e-4) for gradient in gradients]
    assert same_as_whole == ([False, False, True, True] if recurrent else [True, True])


def test_gradients_look_back_no_further_than_a_piece():
    """What was seen in one piece has no slope in the next one's loss; within a piece it has."""
    algorithm = RECURRENT
    learner = random_learner(algorithm, 7)
    part = judge_of(algorithm)(learner, played(7, 4))
    everywhere = part._replace(
        mask=jnp.ones_like(part.mask),
        choice=jnp.ones_like(part.choice),
        advantage=jnp.ones_like(part.advantage),
    )
    last = everywhere._replace(
        choice=everywhere.choice.at[:, :1].set(False).at[:, 2:].set(False).at[:, 1, 0].set(False)
    )  # row 3 alone, the second of the second piece

    @quick_jit
    @jax.grad
    def slope(xs_pi):
        return algorithm.loss(learner.networks, learner.scale, last._replace(xs_pi=xs_pi))[1]["policy_gain"]

    reach = np.abs(np.asarray(slope(part.xs_pi))).max((0, 3, 4))
    assert_array_equal(reach > 0, [[False, False], [True, True], [False, False]])


# An update


@dataclass(frozen=True)
class Recording(MAPPO):
    """Tells of every part it learns from."""

    def loss(self, networks: Networks, scale: Scale, part: Rollout):
        jax.debug.callback(lambda x: MET.append(np.asarray(x)), part.returns[:, 0, 0, 0], ordered=True)
        return super().loss(networks, scale, part)


MET: list[np.ndarray] = []


@pytest.mark.parametrize("minibatches", [1, 3])
def test_every_epoch_sees_every_episode_once(minibatches):
    options: Any = {"recurrent": False, "hidden": 8, "layers": 1, "ppo_epochs": 4}
    algorithm = Recording(**options, minibatches=minibatches)
    learner, batch = random_learner(FEED_FORWARD, 8), played(8, 6)
    MET.clear()
    quick_jit(algorithm.update)(learner, batch, jax.random.key(8), STEP)
    jax.effects_barrier()
    assert [part.shape for part in MET] == 4 * minibatches * [(6 // minibatches,)]
    epochs = np.concatenate(MET).reshape(4, 6)
    everybody = np.sort(flat(judge_of(FEED_FORWARD)(learner, batch).returns)[:, 0, 0])
    assert len(np.unique(everybody)) == 6
    assert_allclose(np.sort(epochs, axis=1), np.tile(everybody, (4, 1)), rtol=1e-5)
    assert len(np.unique(epochs, axis=0)) > 1


def test_episodes_that_cannot_be_shared_out_are_a_mistake():
    learner, batch = random_learner(FEED_FORWARD, 0), played(0, 4)
    with pytest.raises(UserError, match=r"^4 parallel episodes cannot be split into 3 minibatches$"):
        small(minibatches=3).update(learner, batch, jax.random.key(0), STEP)


def test_policy_and_value_are_moved_by_losses_of_their_own():
    learner = random_learner(RECURRENT, 9)
    part = judge_of(RECURRENT)(learner, played(9, 4))
    names = ("policy_gain", "entropy_ind", "value_loss")

    @quick_jit
    @jax.jacrev
    def slopes(networks: Networks):
        metrics = RECURRENT.loss(networks, learner.scale, part)[1]
        return jnp.stack([metrics[name] for name in names])

    found = slopes(learner.networks)
    for row, name in enumerate(names):
        pi, v = (size(jax.tree.map(lambda x, row=row: x[row], net)) for net in found)
        assert (pi > 0, v > 0) == (name != "value_loss", name == "value_loss")


@both_bodies
def test_an_update_is_steps_of_two_optimisers_one_epoch_after_the_other(recurrent):
    """Written out: one judgement, then in every epoch a scale, a gradient and a clipped step of each."""
    algorithm = small(recurrent=recurrent)
    learner, batch = random_learner(algorithm, 10), played(10, 4)
    updated, metrics = update_of(algorithm)(learner, batch, jax.random.key(10), STEP)
    part = judge_of(algorithm)(learner, batch)
    networks, scale = learner.networks, learner.scale
    states = {name: optim.init(algorithm.optimiser, getattr(networks, name)) for name in ("pi", "v")}
    descend = quick_jit(partial(optim.descend, algorithm.optimiser))
    gains = []
    for _ in range(3):
        scale = scale.add(part.returns, part.mask, 0.5)
        (_, found), gradient = loss_of(algorithm)(networks, scale, part)
        gains.append(float(found["policy_gain"]))
        moved = {}
        for name in ("pi", "v"):
            step = (getattr(networks, name), getattr(gradient, name), states[name])
            moved[name], states[name] = descend(*step)
        networks = Networks(**moved)
    assert close(updated.networks, networks, tolerance=1e-4)
    assert close(updated.scale, scale, tolerance=1e-4)
    assert int(updated.updates) == 3
    assert_allclose(metrics["policy_gain"], np.mean(gains), rtol=1e-3, atol=1e-5)
    assert gains[-1] > gains[0]


# What the networks are told


def test_without_own_inputs_the_policy_sees_the_observation_and_the_critic_the_state():
    algorithm = small(own_inputs=False)
    learner, batch = quick_jit(lambda key: algorithm.init(key, SPEC))(jax.random.key(0)), played(0, 4)
    part = judge_of(algorithm)(learner, batch)
    assert_array_equal(flat(part.xs_pi), batch.observation.obs[:, :-1])
    for agent in range(N):
        assert_array_equal(flat(part.xs_v)[:, :, agent], batch.observation.state[:, :-1])


def test_the_first_policy_is_almost_uniform():
    learner = quick_jit(lambda key: FEED_FORWARD.init(key, SPEC))(jax.random.key(0))
    batch = played(0, 4)
    assert_array_equal(jax.tree.leaves(learner.scale), np.zeros(3))
    log_pi = flat(judge_of(FEED_FORWARD)(learner, batch).log_pi)
    several = np.asarray(batch.observation.avail)[:, :-1].sum(-1)
    assert_allclose(np.exp(log_pi), 1 / several, atol=0.02)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"clip": 0.0}, "clip and huber must be positive"),
        ({"huber": -1.0}, "clip and huber must be positive"),
        ({"ppo_epochs": 0}, "layers, ppo_epochs, minibatches and chunk must be positive"),
        ({"chunk": 0}, "layers, ppo_epochs, minibatches and chunk must be positive"),
        ({"gae_lambda": 1.5}, "must be in"),
        ({"value_beta": 1.0}, "value_beta must be in"),
    ],
)
def test_impossible_settings_are_a_mistake(options, sentence):
    with pytest.raises(UserError, match=sentence):
        MAPPO(**options)
