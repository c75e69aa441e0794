"""What FOP promises: twin critics whose value decomposes by the agents' soft values, and product policies."""

from dataclasses import replace
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from macpf.algorithms import learning
from macpf.algorithms.fop import FOP, Networks, Targets
from macpf.algorithms.learning import LearnerState
from macpf.maths import UNAVAILABLE
from macpf.networks.mixers import Attention, Duplex
from macpf.schedules import Constant, Linear
from macpf.types import Trajectory
from tests.algorithms.by_hand import (
    JOINT,
    SMALL,
    A,
    N,
    T,
    assert_decentralised,
    assert_drawn_from,
    assert_losses,
    assert_moves,
    assert_one_step,
    assert_only_real_rows_count,
    assert_targets_lag,
    attention_logits,
    ended,
    execute_of,
    features,
    gradients_of,
    in_numpy,
    joint_weights,
    losses_of,
    many_acts_of,
    mixed,
    moment,
    numbers,
    numbers_now,
    random_baseline,
    random_like,
    returns,
    softmax,
    taken,
    team_weights,
    update_of,
)
from tests.helpers import (
    SPEC,
    STEP,
    close,
    few,
    quick_jit,
    random_episode,
    random_episodes,
    random_observation,
    same,
    seeds,
)

ALPHA, EPSILON = 0.4, 0.3
UNITS = replace(SPEC, unit_dim=2)  # the state is the features of the agents


def small(**options: Any) -> FOP:
    """FOP with few units, constant schedules and frequent target copies."""
    mixer = Attention(heads=2, embed=4, hidden=8)
    return FOP(**(SMALL | {"mixer": mixer, "alpha": Constant(ALPHA), "epsilon": Constant(EPSILON)} | options))


FORWARD, RECURRENT, MLP = small(), small(recurrent=True), small(recurrent=True, critic="mlp")
bodies = pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(FORWARD, id="feed-forward"),
        pytest.param(RECURRENT, id="recurrent"),
        pytest.param(MLP, id="mlp"),
    ],
)


# The losses by hand


def training_policy(algorithm: FOP, logits, avail) -> np.ndarray:
    """The probabilities of training."""
    p = softmax(logits)
    if algorithm.epsilon_mode == "everywhere":
        p = (1 - EPSILON) * p + EPSILON / A
    return p * avail / (p * avail).sum()


def soft_values(q, avail) -> np.ndarray:
    """alpha log sum exp(Q / alpha) of each agent, over its available actions."""
    return np.array(
        [ALPHA * np.log(np.sum(np.exp(own[can] / ALPHA))) for own, can in zip(q, avail, strict=True)]
    )


def expected_losses(algorithm: FOP, learner: LearnerState, episode: Trajectory, luck) -> dict[str, list]:
    """The losses of the policy and of both critics at every real row."""
    networks, targets, rows = in_numpy((learner.networks, learner.targets, episode))
    seen, length = rows.observation, int(rows.mask.sum())
    told = algorithm.critic == "agent"
    logits = numbers(networks.pi, features(networks.pi, rows))
    q, q_hat = (
        [numbers(critic, features(critic, rows, told=told)) for critic in (nets.q1, nets.q2)]
        for nets in (networks, targets)
    )

    def team(mixer: Any, q, t: int, actions) -> float:
        return mixed(mixer, taken(q[t], actions), soft_values(q[t], seen.avail[t]), actions, seen.state[t])

    p, value, log_pi = [], [], []
    for t in range(T + 1):
        p.append(np.stack([training_policy(algorithm, logits[t, i], seen.avail[t, i]) for i in range(N)]))
        drawn = [int(np.argmax(np.cumsum(p[t][i]) > luck[t, i])) for i in range(N)]
        value.append(min(team(targets.mixer1, q_hat[0], t, drawn), team(targets.mixer2, q_hat[1], t, drawn)))
        logs = np.log(taken(p[t], drawn))
        log_pi.append(logs.sum() if algorithm.entropy_reduce == "sum" else logs.mean())

    ys = returns(rows, value, algorithm.gamma, algorithm.td_lambda)
    for t in range(length):
        if algorithm.entropy_terminal == "always":
            ys[t] -= ALPHA * log_pi[t + 1]
        elif not rows.terminated[t]:
            ys[t] -= algorithm.gamma * ALPHA * log_pi[t + 1]

    def critic_loss(mixer: Any, q, t: int) -> float:
        error = team(mixer, q, t, rows.actions[t]) - ys[t]
        logits = attention_logits(mixer.weights, seen.state[t])
        return error**2 + mixer.weights.penalty_scale * np.sum(np.mean(logits**2, axis=-1))

    def policy_loss(t: int) -> float:
        least = np.minimum(q[0][t], q[1][t])
        return float(np.sum(p[t] * (ALPHA * np.log(np.where(p[t] > 0, p[t], 1)) - least)) / N)

    return {
        "j": [policy_loss(t) for t in range(length)],
        "l1": [critic_loss(networks.mixer1, q[0], t) for t in range(length)],
        "l2": [critic_loss(networks.mixer2, q[1], t) for t in range(length)],
    }


@pytest.mark.parametrize(
    ("algorithm", "spec"),
    [
        pytest.param(FORWARD, SPEC, id="feed-forward"),
        pytest.param(RECURRENT, UNITS, id="recurrent-units"),
        pytest.param(MLP, SPEC, id="mlp"),
        pytest.param(small(td_lambda=0.0, entropy_reduce="sum", gamma=0.7), SPEC, id="sum-one-step"),
        pytest.param(
            small(entropy_terminal="always", epsilon_mode="everywhere", td_lambda=1.0), UNITS, id="everywhere"
        ),
        pytest.param(small(epsilon_mode="behaviour"), SPEC, id="behaviour"),
        pytest.param(small(mixer=Attention(heads=3, embed=4, hidden=8, penalty=2.0)), SPEC, id="penalty"),
    ],
)
@few(6)
@given(seed=seeds)
def test_losses_are_those_of_loops_over_steps_and_agents(algorithm, spec, seed):
    learner, episode = random_baseline(algorithm, seed, spec), random_episode(seed)
    key = jax.random.key(seed)
    luck = np.asarray(jax.random.uniform(key, (T + 1, N)))
    for terminated in (False, True):
        episode, _ = ended(episode, terminated=terminated)
        rows = losses_of(algorithm)(learner, episode, key)
        assert_losses(rows, episode, expected_losses(algorithm, learner, episode, luck))


def test_the_published_penalty_is_the_default():
    """A thousandth of the mean squared logits, head by head, in each critic's loss."""
    mixer = FOP().mixer
    assert isinstance(mixer, Attention)
    assert mixer.penalty == 0.001
    with_penalty, without = FORWARD, small(mixer=Attention(heads=2, embed=4, hidden=8, penalty=0.0))
    learner, episode, key = random_baseline(FORWARD, 0), random_episode(0), jax.random.key(0)
    tame = jax.tree.unflatten(jax.tree.structure(random_baseline(without, 0)), jax.tree.leaves(learner))
    one, other = losses_of(with_penalty)(learner, episode, key), losses_of(without)(tame, episode, key)
    states = in_numpy(episode.observation.state)[:-1]
    for loss, name in (("l1", "mixer1"), ("l2", "mixer2")):
        weights = in_numpy(getattr(learner.networks, name)).weights
        added = [0.001 * np.mean(attention_logits(weights, state) ** 2, axis=-1).sum() for state in states]
        np.testing.assert_allclose(one[loss] - other[loss], added, rtol=0.05, atol=1e-4)
        assert max(added) > 1e-3
    assert same(one["j"], other["j"])


@few(5)
@given(seed=seeds)
def test_the_critics_are_twins(seed):
    """With critics exchanged so are their losses, and the policy's is the same."""
    learner, episode, key = random_baseline(RECURRENT, seed), random_episode(seed), jax.random.key(seed)

    def exchanged(nets: Any) -> Any:
        return nets._replace(q1=nets.q2, mixer1=nets.mixer2, q2=nets.q1, mixer2=nets.mixer1)

    other = LearnerState(
        exchanged(learner.networks), exchanged(learner.targets), learner.optimisers, learner.updates
    )
    one, two = (losses_of(RECURRENT)(x, episode, key) for x in (learner, other))
    assert same((one["j"], one["l1"], one["l2"]), (two["j"], two["l2"], two["l1"]))
    assert not close(one["l1"], one["l2"])


# What each loss moves

PARTS = ("pi.body", "pi.head", "q1.body", "q1.head", "mixer1", "q2.body", "q2.head", "mixer2")
TABLE = {
    "j": {"pi.body", "pi.head"},
    "l1": {"q1.body", "q1.head", "mixer1"},
    "l2": {"q2.body", "q2.head", "mixer2"},
}


@bodies
@few(4)
@given(seed=seeds)
def test_a_loss_has_a_gradient_for_what_it_moves_and_none_for_the_rest(algorithm, seed):
    learner, batch = random_baseline(algorithm, seed), random_episodes(seed, 3)
    assert_moves(gradients_of(algorithm)(learner, batch, jax.random.key(seed)), PARTS, TABLE)


two = pytest.mark.parametrize(
    "algorithm", [pytest.param(RECURRENT, id="recurrent"), pytest.param(MLP, id="mlp")]
)


@two
def test_an_update_is_one_step_for_the_policy_and_one_for_each_critic_with_its_mixer(algorithm):
    assert_one_step(algorithm, [["pi"], ["q1", "mixer1"], ["q2", "mixer2"]], 3)


def test_targets_are_copied_at_every_period_th_update_and_only_then():
    assert_targets_lag(MLP, ["q1", "mixer1", "q2", "mixer2"])


@two
@few(3)
@given(seed=seeds)
def test_what_lies_behind_the_end_changes_no_update(algorithm, seed):
    assert_only_real_rows_count(algorithm, seed)


def test_the_update_tells_its_mean_losses_at_the_temperature_of_the_step():
    falling = small(alpha=Linear(0.6, 0.2, 100))
    learner, batch, key = random_baseline(falling, 8), random_episodes(8, 3), jax.random.key(8)
    lucks = [jax.random.uniform(key, (T + 1, N)) for key in jax.random.split(key, 3)]
    episodes = [jax.tree.map(lambda leaf, b=b: leaf[b], batch) for b in range(3)]
    expected = [expected_losses(falling, learner, *each) for each in zip(episodes, lucks, strict=True)]
    _, metrics = update_of(falling)(learner, batch, key, STEP + 50)
    _, earlier = update_of(falling)(learner, batch, key, STEP)
    for loss in TABLE:
        mean = np.mean(np.concatenate([rows[loss] for rows in expected]))
        np.testing.assert_allclose(metrics[loss], mean, rtol=1e-4)
        assert not close(metrics[loss], earlier[loss])
    np.testing.assert_allclose(metrics["alpha"], ALPHA, rtol=1e-6)


def test_critics_differ_from_the_start_and_targets_begin_as_copies():
    learner = quick_jit(lambda key: FORWARD.init(key, SPEC))(jax.random.key(0))
    networks: Networks = learner.networks
    assert same(learner.targets, Targets(networks.q1, networks.mixer1, networks.q2, networks.mixer2))
    assert not close(networks.q1, networks.q2)
    assert not close(networks.mixer1, networks.mixer2)


# The decomposition


@cache
def team_values_of():
    """The team's value of every joint action in one moment, by the agents' values."""

    def team(mixer, q, seen):
        def value(actions):
            one = jax.tree.map(lambda leaf: leaf[None], seen)
            return learning.mixed(mixer, q[None], actions[None], one, jnp.asarray(ALPHA))[0]

        return jax.vmap(value)(jnp.asarray(JOINT))

    return quick_jit(team)


@pytest.mark.parametrize("making", [Attention(heads=2, embed=4, hidden=8), Duplex(heads=2, hidden=8)])
@few(15)
@given(seed=seeds)
def test_the_joint_soft_advantage_is_a_positive_sum_of_the_agents_log_policies(making, seed):
    """Q_jt - [sum_i w_i V_i + V(s)] = sum_i w_i lambda_i alpha log pi_i, pi_i prop. to exp(Q_i / alpha)."""
    shapes = jax.eval_shape(lambda key: making.make(key, UNITS), jax.random.key(0))
    mixer, rng = random_like(shapes, seed), np.random.default_rng(seed)
    seen = random_observation(rng, ())
    q = jnp.asarray(2 * rng.standard_normal((N, A)), jnp.float32)
    values = np.asarray(team_values_of()(mixer, q, seen))
    by_hand, state, avail, q = in_numpy((mixer, seen.state, seen.avail, q))
    w, b = team_weights(by_hand.weights, state)
    v = soft_values(q, avail)
    assert np.all(w > 0)
    for actions, value in zip(JOINT, values, strict=True):
        lam = joint_weights(by_hand.joint, state, actions)
        own = taken(q, actions)
        assert np.all(lam > 0)
        np.testing.assert_allclose(value - (w @ v + b), np.sum(w * lam * (own - v)), rtol=1e-3, atol=1e-4)
        if taken(avail, actions).all():
            log_pi = [
                np.log(softmax(q[i] / ALPHA)[actions[i]] / softmax(q[i] / ALPHA)[avail[i]].sum())
                for i in range(N)
            ]
            np.testing.assert_allclose((own - v) / ALPHA, log_pi, rtol=1e-6, atol=1e-9)


# The critic of the first code


def undecided(learner: LearnerState) -> LearnerState:
    """The learner with a uniform policy, whose loss then tells the critics' values alone."""
    return eqx.tree_at(
        lambda x: x.networks.pi.head, learner, replace_fn=lambda head: jax.tree.map(jnp.zeros_like, head)
    )


@pytest.mark.parametrize(
    ("algorithm", "hears", "remembers"),
    [
        pytest.param(MLP, False, False, id="mlp"),
        pytest.param(small(critic="mlp"), False, False, id="mlp-feed-forward"),
        pytest.param(FORWARD, True, False, id="feed-forward"),
        pytest.param(RECURRENT, True, True, id="recurrent"),
    ],
)
@few(4)
@given(seed=seeds)
def test_an_mlp_critic_hears_of_no_previous_action_and_remembers_nothing(algorithm, hears, remembers, seed):
    learner, episode = undecided(random_baseline(algorithm, seed)), random_episode(seed)
    acted = eqx.tree_at(lambda e: e.actions, episode, (episode.actions + 1) % A)
    saw = eqx.tree_at(lambda e: e.observation.obs, episode, episode.observation.obs.at[0].add(1.0))
    j, after_others, after_another_start = (
        np.asarray(losses_of(algorithm)(learner, e, jax.random.key(0))["j"]) for e in (episode, acted, saw)
    )
    assert np.any(j[1:] != after_others[1:]) == hears
    assert np.any(j[1:] != after_another_start[1:]) == remembers
    assert j[0] == after_others[0]
    assert j[0] != after_another_start[0]


def test_an_mlp_critic_has_two_hidden_layers_and_the_policy_keeps_its_memory():
    learner = random_baseline(MLP, 0)
    assert len(learner.networks.q1.body.layers.layers) == len(learner.networks.q2.body.layers.layers) == 2
    assert learner.networks.pi.body.memory_size == MLP.init_memory(SPEC).hidden.shape[-1] == 8


# Acting


def policies_now(learner: LearnerState, memory, observation, epsilon: float = 0.0) -> np.ndarray:
    """Every agent's probabilities in one moment, with epsilon mixed in before unavailable ones are cut."""
    logits = numbers_now(learner.networks.pi, memory, observation)
    p = np.stack([(1 - epsilon) * softmax(own) + epsilon / A for own in logits])
    cut = p * np.asarray(observation.avail)
    return cut / cut.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("algorithm", "mixed_in", "by_chance"),
    [
        pytest.param(RECURRENT, 0.0, 0.0, id="none"),
        pytest.param(small(epsilon_mode="behaviour"), 0.0, EPSILON, id="behaviour"),
        pytest.param(small(epsilon_mode="everywhere"), EPSILON, EPSILON, id="everywhere"),
    ],
)
def test_joint_actions_are_drawn_from_the_product_of_policies(algorithm, mixed_in, by_chance, seed):
    learner, (memory, observation) = random_baseline(algorithm, seed), moment(algorithm, seed)
    explored, sampled = many_acts_of(algorithm)(learner, memory, observation, STEP)
    avail = np.asarray(observation.avail)
    anything = avail / avail.sum(axis=-1, keepdims=True)
    trained = policies_now(learner, memory, observation, mixed_in)
    assert_drawn_from(explored, (1 - by_chance) * trained + by_chance * anything)
    assert_drawn_from(sampled, policies_now(learner, memory, observation))


@bodies
@few(10)
@given(seed=seeds)
def test_greedy_execution_is_the_likeliest_available_action_whatever_the_key(algorithm, seed):
    learner, (memory, observation) = random_baseline(algorithm, seed), moment(algorithm, seed)
    p = policies_now(learner, memory, observation)
    for key in range(3):
        actions, _ = execute_of(algorithm)(learner, memory, observation, jax.random.key(key))
        np.testing.assert_array_equal(actions, p.argmax(axis=-1))


@pytest.mark.parametrize("sample", [False, True], ids=["greedy", "sampled"])
@few(10)
@given(seed=seeds)
def test_an_agent_executes_the_same_whatever_the_others_see(sample, seed):
    assert_decentralised(RECURRENT, seed, sample=sample)


@few(5)
@given(seed=seeds)
def test_a_joint_action_is_as_likely_as_its_parts_together(seed):
    learner, (memory, observation) = random_baseline(FORWARD, seed), moment(FORWARD, seed)
    by_policy = log_probs_of()(learner, memory, observation)
    assert by_policy.keys() == FORWARD.policies.keys() == {"ind"}
    p = policies_now(learner, memory, observation)
    expected = np.array([np.prod(taken(p, actions)) for actions in JOINT])
    np.testing.assert_allclose(np.exp(by_policy["ind"]), expected, rtol=1e-4)
    assert np.all(np.asarray(by_policy["ind"])[expected == 0] <= UNAVAILABLE / 2)


@cache
def log_probs_of():
    """How likely every joint action is."""

    def log_probs(learner, memory, observation):
        every = jax.vmap(lambda actions: FORWARD.log_prob(learner, memory, observation, actions))
        return every(jnp.asarray(JOINT))

    return quick_jit(log_probs)
