"""MACPF's ablations: what each takes away or changes, and that it is nothing else."""

from dataclasses import fields, replace
from functools import cache
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose

from macpf import optim
from macpf.algorithms import ALGORITHMS
from macpf.algorithms.learning import LearnerState
from macpf.algorithms.macpf import MACPF, Losses, Networks
from macpf.networks.agents import agent_inputs, each, previous_actions, unroll_together
from macpf.networks.mixers import AdvantageMixer, Attention, AttentionWeights, Hyper, HyperMixer
from macpf.schedules import Linear
from macpf.types import Memory, Trajectory
from tests.helpers import (
    SPEC,
    STEP,
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
ALPHA = 0.3  # that of `tiny`
JOINT = jnp.asarray(list(product(range(A), repeat=N)))

both_bodies = pytest.mark.parametrize("recurrent", [False, True], ids=["feed-forward", "recurrent"])


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("macpf-control", "dependent", False),
        ("macpf-nonlinear", "mixer", Hyper(embed=64, hidden=64, form="elu")),
        ("macpf-att", "mixer", Attention(heads=4, embed=32, hidden=64, penalty=0.001)),
    ],
)
def test_an_ablation_is_macpf_but_for_one_thing(name, field, value):
    whole, without = (ALGORITHMS[key].make() for key in ("macpf", name))
    assert isinstance(without, MACPF)
    differ = {f.name for f in fields(MACPF) if getattr(whole, f.name) != getattr(without, f.name)}
    assert differ == {field}
    assert getattr(without, field) == value


# Without the dependent policy


def nudged(learner: LearnerState, *names: str) -> LearnerState:
    """The learner with other numbers in some of its networks."""
    networks = learner.networks._asdict()
    for name in names:
        networks[name] = jax.tree.map(
            lambda x: x + 0.5 * jnp.cos(jnp.arange(x.size)).reshape(x.shape), networks[name]
        )
    return LearnerState(Networks(**networks), learner.targets, learner.optimisers, learner.updates)


def test_control_has_the_independent_policy_alone():
    control = tiny(dependent=False)
    assert set(control.policies) == {"ind"}
    assert set(tiny().policies) == {"ind", "dep"}
    learner = random_learner(control, 0)
    memory = control.init_memory(SPEC)
    observation = random_observation(np.random.default_rng(0), ())
    assert set(control.log_prob(learner, memory, observation, JOINT[0])) == {"ind"}


COUNT = 4000


@cache
def exploring(algorithm: MACPF):
    """Many draws of the behaviour, and the log-probability of every joint action under pi_ind."""

    def explore(learner, memory, observation, seed):
        keys = jax.random.split(jax.random.key(seed), COUNT)
        drawn, after = jax.vmap(lambda k: algorithm.explore(learner, memory, observation, k, STEP))(keys)
        log_prob = jax.vmap(lambda a: algorithm.log_prob(learner, memory, observation, a)["ind"])(JOINT)
        return drawn, after.hidden, log_prob

    return quick_jit(explore)


@both_bodies
def test_control_explores_by_the_independent_policy(recurrent):
    control = tiny(recurrent=recurrent, dependent=False)
    learner = random_learner(control, 1)
    rng = np.random.default_rng(1)
    hidden = jnp.asarray(rng.uniform(-1, 1, control.init_memory(SPEC).hidden.shape), jnp.float32)
    memory = Memory(hidden, jnp.asarray(rng.integers(0, A, N), jnp.int32))
    observation = random_observation(rng, ())
    drawn, after, log_prob = exploring(control)(learner, memory, observation, 0)
    shares = np.bincount(np.ravel_multi_index(tuple(np.asarray(drawn).T), (A,) * N), minlength=A**N) / COUNT
    probs = np.exp(np.asarray(log_prob, float))
    assert (np.abs(shares - probs) <= 5 * np.sqrt(probs * (1 - probs) / COUNT) + 1e-3).all()
    corrected = nudged(learner, "b_dep", "c_dep")
    assert same(exploring(control)(corrected, memory, observation, 0)[:2], (drawn, after))
    assert not same(exploring(control)(nudged(learner, "pi_ind"), memory, observation, 0)[0], drawn)


def practised(learner: LearnerState) -> LearnerState:
    """The learner with optimisers that have seen gradients: a step of zero would show in their state."""
    optimisers = jax.tree.map(lambda x: jnp.asarray(np.full(x.shape, 0.5, x.dtype)), learner.optimisers)
    return LearnerState(learner.networks, learner.targets, optimisers, learner.updates)


@both_bodies
@few(3)
@given(seed=seeds)
def test_control_leaves_the_corrections_alone_and_moves_the_rest_as_macpf_does(recurrent, seed):
    whole, control = tiny(recurrent=recurrent), tiny(recurrent=recurrent, dependent=False)
    learner, batch, key = (
        practised(random_learner(control, seed)),
        random_episodes(seed, 3),
        jax.random.key(seed),
    )
    after, metrics = update_of(control)(learner, batch, key, STEP)
    for name in ("b_dep", "c_dep"):
        assert same(getattr(after.networks, name), getattr(learner.networks, name))
        assert same(after.optimisers[name], learner.optimisers[name])
    assert "entropy_dep" not in metrics
    assert metrics["j_dep"] == metrics["l_dep"] == 0

    gradients = gradients_of(whole)(learner, batch, key)
    for name, loss, at in (("pi_ind", "j_ind", 0), ("q_ind", "l_ind", 2), ("mixer", "l_ind", 2)):
        gradient = jax.tree.map(lambda x, at=at: x[at], getattr(getattr(gradients, loss), name))
        before = getattr(learner.networks, name)
        moved, _ = descend({name: before}, {name: gradient}, learner.optimisers[name])
        assert close(getattr(after.networks, name), moved[name], tolerance=1e-4)
        assert not close(getattr(after.networks, name), before, tolerance=1e-4)


@quick_jit
def descend(params: Any, gradient: Any, state: Any) -> Any:
    """One step of the optimiser that `tiny` has."""
    return optim.descend(tiny().optimiser, params, gradient, state)


def test_macpf_itself_moves_the_mixer_by_both_losses():
    """Without this the comparison above would not tell CONTROL from MACPF."""
    learner, batch, key = random_learner(tiny(), 2), random_episodes(2, 3), jax.random.key(2)
    whole, control = (update_of(tiny(dependent=d))(learner, batch, key, STEP)[0] for d in (True, False))
    assert close(whole.networks.pi_ind, control.networks.pi_ind)
    assert close(whole.networks.q_ind, control.networks.q_ind)
    assert not close(whole.networks.mixer, control.networks.mixer)
    assert not same(whole.networks.b_dep, learner.networks.b_dep)


# What the agents and their critics say of an episode, by loops


@cache
def critics_say():
    """q_ind and q_dep of every agent and action at every row of an episode."""

    def say(networks: Networks, episode: Trajectory):
        seen, actions, c = episode.observation, episode.actions, networks.c_dep
        xs = agent_inputs(seen.obs, previous_actions(actions), A)
        (h,) = unroll_together([networks.q_ind.body], xs)
        q_ind = each(networks.q_ind.head)(h)
        rows = []
        for i in range(N):
            told = jnp.zeros((T + 1, c.b1.size))
            for j in range(i):
                embedded = jax.nn.elu((c.w1_id[j] + c.b1)[None] + c.w1_action[actions[:, j]])
                told += seen.visible[:, i, j, None] * embedded / N
            rows.append(q_ind[:, i] + h[:, i] @ c.w2_own + told @ c.w2_told + c.b2[None])
        return q_ind, jnp.stack(rows, axis=1)

    return quick_jit(say)


@cache
def losses_of(algorithm: MACPF):
    """The compiled losses of one episode."""

    def losses(networks: Networks, targets: Any, episode: Trajectory) -> Losses:
        by = Losses(*[networks] * 4)
        return algorithm.losses(by, targets, episode, jax.random.key(0), STEP)[0]

    return quick_jit(losses)


def chosen(q: np.ndarray, episode: Trajectory) -> np.ndarray:
    """The values of the stored actions."""
    return np.take_along_axis(q, np.asarray(episode.actions)[..., None], axis=-1)[..., 0]


# With QMIX's mixer

NONLINEAR = tiny(mixer=Hyper(embed=8, hidden=8, form="elu"), gamma=0.0)


def layers(stack: Any, x: np.ndarray) -> np.ndarray:
    for i, layer in enumerate(stack.layers):
        x = (np.maximum(x, 0) if i else x) @ np.asarray(layer.weight, float).T + np.asarray(layer.bias)
    return x


def elu_mixed(mixer: HyperMixer, q: np.ndarray, state: np.ndarray) -> float:
    """QMIX's value of the team, written out."""
    hidden = q @ np.abs(layers(mixer.w1, state)).reshape(N, -1)
    hidden = hidden + np.asarray(mixer.b1.weight, float) @ state + np.asarray(mixer.b1.bias)
    bent = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0)))
    return float(bent @ np.abs(layers(mixer.w2, state)) + layers(mixer.v, state)[0])


@few(5)
@given(seed=seeds)
def test_nonlinear_has_macpfs_losses_under_qmixs_mixer(seed):
    learner, episode = random_learner(NONLINEAR, seed), random_episode(seed)
    losses = losses_of(NONLINEAR)(learner.networks, learner.targets, episode)
    states, reward = np.asarray(episode.observation.state, float), np.asarray(episode.reward, float)
    both = critics_say()(learner.networks, episode)
    for q, loss in zip(both, (losses.l_ind, losses.l_dep), strict=True):
        stored = chosen(np.asarray(q, float), episode)
        mixed = [elu_mixed(learner.networks.mixer, stored[t], states[t]) for t in range(T)]
        assert_allclose(loss, (np.asarray(mixed) - reward[:T]) ** 2, rtol=1e-3, atol=1e-3)

    def linear(mixer: HyperMixer) -> HyperMixer:
        return HyperMixer(mixer.w1, mixer.b1, mixer.w2, mixer.v, "linear")

    networks, targets = (
        tree._replace(mixer=linear(tree.mixer)) for tree in (learner.networks, learner.targets)
    )
    plain = losses_of(replace(NONLINEAR, mixer=tiny().mixer))(networks, targets, episode)
    assert close((plain.j_ind, plain.j_dep), (losses.j_ind, losses.j_dep))
    assert not close(plain.l_ind, losses.l_ind, tolerance=1e-2)


@few(5)
@given(seed=seeds)
def test_the_nonlinear_team_is_no_weighted_sum_and_macpfs_is(seed):
    for algorithm, linear in ((NONLINEAR, False), (tiny(), True)):
        mixer = random_learner(algorithm, seed).networks.mixer
        rng = np.random.default_rng(seed)
        q = jnp.asarray(3 * rng.standard_normal(N), jnp.float32)
        state = jnp.asarray(rng.standard_normal(SPEC.state_dim), jnp.float32)
        values = [float(mixer(k * q, q, JOINT[0], state)) for k in (-1.0, 0.0, 1.0)]
        assert (abs(values[0] + values[2] - 2 * values[1]) < 1e-3) == linear


# With FOP's attention mixer

ATT = tiny(mixer=Attention(heads=2, embed=4, hidden=8), gamma=0.0)


def soft(q: np.ndarray, avail: np.ndarray, alpha: float) -> np.ndarray:
    weights = np.where(avail, np.exp(q / alpha), 0.0)
    return alpha * np.log(weights.sum(-1))


@cache
def mixing():
    """The mixer at every row, called as it is."""

    def mix(mixer, q, v, actions, state):
        return jax.vmap(mixer)(q, v, actions, state)

    return quick_jit(mix)


def restless(weights: Any, states: np.ndarray) -> np.ndarray:
    """The mean square of the attention's logits, summed over heads, at every row."""
    total = np.zeros(len(states))
    for head in range(weights.keys.shape[0]):
        first, last = weights.selectors.layers
        inner = np.maximum(states @ np.asarray(first.weight[head], float).T + np.asarray(first.bias[head]), 0)
        selected = inner @ np.asarray(last.weight[head], float).T
        logits = selected @ np.asarray(weights.keys[head], float).T  # a unit is an agent's index
        total += (logits**2).mean(-1)
    return total


@few(5)
@given(seed=seeds)
def test_att_mixes_by_the_soft_values_of_the_mode_in_question(seed):
    learner, episode = random_learner(ATT, seed), random_episode(seed)
    seen, mixer = episode.observation, learner.networks.mixer
    assert isinstance(mixer, AdvantageMixer)
    assert isinstance(mixer.weights, AttentionWeights)
    losses = losses_of(ATT)(learner.networks, learner.targets, episode)
    penalty = 0.001 * restless(mixer.weights, np.asarray(seen.state, float))[:T]
    reward = np.asarray(episode.reward, float)[:T]
    both = [np.asarray(q, float) for q in critics_say()(learner.networks, episode)]
    soft_values = [soft(q, np.asarray(seen.avail), ALPHA) for q in both]
    joint = [
        np.asarray(
            mixing()(
                mixer,
                jnp.asarray(chosen(q, episode), jnp.float32),
                jnp.asarray(v, jnp.float32),
                episode.actions,
                seen.state,
            )
        )
        for q, v in (*zip(both, soft_values, strict=True), (both[1], soft_values[0]))
    ]
    assert_allclose(losses.l_ind, (joint[0][:T] - reward) ** 2 + penalty, rtol=1e-3, atol=1e-3)
    assert_allclose(losses.l_dep, (joint[1][:T] - reward) ** 2 + penalty, rtol=1e-3, atol=1e-3)
    assert not np.allclose(losses.l_dep, (joint[2][:T] - reward) ** 2 + penalty, rtol=1e-3, atol=1e-3)


def test_the_soft_values_are_those_of_the_temperature():
    learner, episode = random_learner(ATT, 3), random_episode(3)
    warm = replace(ATT, alpha=Linear(1.0, 0.1, 100))
    one, other = (losses_of(a)(learner.networks, learner.targets, episode) for a in (ATT, warm))
    assert not close(one.l_ind, other.l_ind, tolerance=1e-3)


def test_the_penalty_is_in_both_critic_losses_and_in_no_other():
    learner, episode = random_learner(ATT, 4), random_episode(4)
    mixer = learner.networks.mixer
    free = replace(ATT, mixer=Attention(heads=2, embed=4, hidden=8, penalty=0.0))
    weights = mixer.weights
    eased = AttentionWeights(
        weights.selectors, weights.keys, weights.v, weights.n_agents, weights.unit_dim, penalty_scale=0.0
    )
    networks = learner.networks._replace(mixer=AdvantageMixer(eased, mixer.joint))
    targets = learner.targets._replace(mixer=AdvantageMixer(eased, learner.targets.mixer.joint))
    dear = losses_of(ATT)(learner.networks, learner.targets, episode)
    cheap = losses_of(free)(networks, targets, episode)
    expected = 0.001 * restless(weights, np.asarray(episode.observation.state, float))[:T]
    assert expected.min() > 1e-5
    for loss in ("l_ind", "l_dep"):
        assert_allclose(getattr(dear, loss) - getattr(cheap, loss), expected, rtol=0.1, atol=1e-5)
    assert close((dear.j_ind, dear.j_dep), (cheap.j_ind, cheap.j_dep))


def test_every_ablation_moves_its_mixer():
    for mixer in (NONLINEAR.mixer, ATT.mixer):
        algorithm = tiny(mixer=mixer)
        learner = random_learner(algorithm, 5)
        after, _ = update_of(algorithm)(learner, random_episodes(5, 3), jax.random.key(5), STEP)
        before = jax.tree.leaves(learner.networks.mixer)
        assert len(before) > 6
        for old, new in zip(before, jax.tree.leaves(after.networks.mixer), strict=True):
            assert np.any(np.asarray(old) != np.asarray(new))
