"""What QTRAN promises: which loss moves what, and a sum of values that is never below the joint critic."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from macpf.algorithms.learning import LearnerState
from macpf.algorithms.qtran import QTRAN
from macpf.algorithms.value import Networks as ValueNetworks
from macpf.algorithms.value import ValueDecomposition
from macpf.errors import UserError
from macpf.networks.mixers import Additive, Sum
from macpf.types import Trajectory
from tests.algorithms.by_hand import (
    SMALL,
    A,
    N,
    T,
    assert_decentralised,
    assert_losses,
    assert_moves,
    assert_one_step,
    assert_only_real_rows_count,
    assert_targets_lag,
    ended,
    features,
    gradients_of,
    in_numpy,
    layers,
    losses_of,
    moment,
    numbers,
    random_baseline,
    returns,
    taken,
)
from tests.helpers import STEP, few, quick_jit, random_episode, random_episodes, same, seeds


def small(**options: Any) -> QTRAN:
    """QTRAN with few units and frequent target copies."""
    return QTRAN(**(SMALL | options))


BASE, ALT = small(), small(variant="alt")
variants = pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(BASE, id="base"),
        pytest.param(ALT, id="alt"),
        pytest.param(small(recurrent=True), id="base-recurrent"),
        pytest.param(small(recurrent=True, variant="alt"), id="alt-recurrent"),
    ],
)


def lifted(learner: LearnerState, by: float) -> LearnerState:
    """The learner with so much added to V_jt in every state."""
    return eqx.tree_at(lambda x: x.networks.v_jt.layers[-1].bias, learner, replace_fn=lambda bias: bias + by)


# What each loss moves

PARTS = ("q.body", "q.head", "q_jt.encoder", "q_jt.reader", "v_jt")
TABLE = {
    "l_td": {"q.body", "q_jt.encoder", "q_jt.reader"},
    "l_opt": {"q.body", "q.head", "v_jt"},
    "l_nopt": {"q.body", "q.head", "v_jt"},
}


@variants
@few(4)
@given(seed=seeds)
def test_a_loss_has_a_gradient_for_what_it_moves_and_none_for_the_rest(algorithm, seed):
    learner = lifted(random_baseline(algorithm, seed), -50.0)  # the sum dominates nowhere
    assert_moves(gradients_of(algorithm)(learner, random_episodes(seed, 3), jax.random.key(0)), PARTS, TABLE)


@variants
@few(3)
@given(seed=seeds)
def test_the_joint_critic_tells_the_bodies_nothing_but_by_its_own_loss(algorithm, seed):
    """Under heads of zeros, values say nothing of the features below, so that nothing else reaches these."""
    learner = lifted(random_baseline(algorithm, seed), -50.0)
    learner = eqx.tree_at(
        lambda x: x.networks.q.head, learner, replace_fn=lambda head: jax.tree.map(jnp.zeros_like, head)
    )
    gradients = gradients_of(algorithm)(learner, random_episodes(seed, 3), jax.random.key(0))
    assert_moves(gradients, PARTS, TABLE | {loss: {"q.head", "v_jt"} for loss in ("l_opt", "l_nopt")})


@few(5)
@given(seed=seeds)
def test_a_sum_that_dominates_is_left_alone(seed):
    learner, batch = random_baseline(BASE, seed), random_episodes(seed, 3)
    high = lifted(learner, 50.0)
    gradients = gradients_of(BASE)(high, batch, jax.random.key(0))
    assert_moves(gradients, PARTS, TABLE | {"l_nopt": set()})
    episode = jax.tree.map(lambda leaf: leaf[0], batch)
    above, below = (
        losses_of(BASE)(at, episode, jax.random.key(0))["l_nopt"] for at in (high, lifted(learner, -50.0))
    )
    assert np.all(np.asarray(above) == 0)
    assert np.all(np.asarray(below) > 0)


# The losses by hand


def joint_value(critic: Any, h, actions, state) -> float:
    """Q_jt of a joint action."""
    did = np.eye(A)[list(actions)]
    encoded = sum(layers(critic.encoder, np.concatenate([h[i], did[i]])) for i in range(N))
    return float(layers(critic.reader, np.concatenate([encoded, state]))[0])


def expected_losses(algorithm: QTRAN, learner: LearnerState, episode: Trajectory) -> dict[str, list[float]]:
    """The three losses at every real row."""
    networks, targets, rows = in_numpy((learner.networks, learner.targets, episode))
    h, h_hat = features(networks.q, rows), features(targets.q, rows)
    q, seen = numbers(networks.q, h), rows.observation
    legal = [[np.flatnonzero(own) for own in row] for row in seen.avail]
    a_bar = [[max(legal[t][i], key=lambda a, own=q[t, i]: own[a]) for i in range(N)] for t in range(T + 1)]
    hats = [joint_value(targets.q_jt, h_hat[t], a_bar[t], seen.state[t]) for t in range(T + 1)]
    ys = returns(rows, hats, algorithm.gamma, 0.0)

    def over(t: int, actions) -> float:
        """By how much the sum of values exceeds the joint critic."""
        v_jt = layers(networks.v_jt, seen.state[t])[0]
        q_jt = joint_value(networks.q_jt, h[t], actions, seen.state[t])
        return float(taken(q[t], actions).sum() - q_jt + v_jt)

    def instead(t: int, i: int, action: int) -> list[int]:
        """The stored joint action but for what agent i does."""
        return [action if j == i else int(rows.actions[t, j]) for j in range(N)]

    expected: dict[str, list[float]] = {"l_td": [], "l_opt": [], "l_nopt": []}
    for t, y in enumerate(ys):
        expected["l_td"].append((joint_value(networks.q_jt, h[t], rows.actions[t], seen.state[t]) - y) ** 2)
        expected["l_opt"].append(algorithm.opt_weight * over(t, a_bar[t]) ** 2)
        if algorithm.variant == "base":
            l_nopt = min(over(t, rows.actions[t]), 0.0) ** 2
        else:
            least = [min(over(t, instead(t, i, int(a))) for a in legal[t][i]) for i in range(N)]
            l_nopt = float(np.mean(np.square(least)))
        expected["l_nopt"].append(algorithm.nopt_weight * l_nopt)
    return expected


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(BASE, id="base"),
        pytest.param(ALT, id="alt"),
        pytest.param(small(recurrent=True, opt_weight=0.5, nopt_weight=2.0), id="base-recurrent-weights"),
        pytest.param(small(recurrent=True, variant="alt", nopt_weight=3.0), id="alt-recurrent-weights"),
    ],
)
@few(6)
@given(seed=seeds)
def test_losses_are_those_of_loops_over_steps_and_agents(algorithm, seed):
    learner, episode = random_baseline(algorithm, seed), random_episode(seed)
    for terminated in (False, True):
        episode, _ = ended(episode, terminated=terminated)
        rows = losses_of(algorithm)(learner, episode, jax.random.key(0))
        assert_losses(rows, episode, expected_losses(algorithm, learner, episode))


def test_the_published_weights_are_the_defaults():
    assert (QTRAN().opt_weight, QTRAN().nopt_weight) == (1.0, 0.1)


@few(6)
@given(seed=seeds)
def test_with_no_other_choice_the_alternative_is_the_condition_itself_unclipped(seed):
    learner, episode = lifted(random_baseline(ALT, seed), -50.0), random_episode(seed)
    alone = jax.nn.one_hot(episode.actions, A, dtype=bool)
    forced = eqx.tree_at(lambda e: e.observation.avail, episode, alone)
    base, alt = (losses_of(x)(learner, forced, jax.random.key(0))["l_nopt"] for x in (BASE, ALT))
    free = losses_of(ALT)(learner, episode, jax.random.key(0))["l_nopt"]
    np.testing.assert_allclose(alt, base, rtol=1e-4)
    assert np.all(np.asarray(free) >= np.asarray(alt) * (1 - 1e-5))  # the least of more, and all below zero
    assert np.any(np.asarray(free) > np.asarray(alt) * 1.01)


# The joint critic


@cache
def critic_calls():
    """The value of every agent doing anything else: at once, and one call for each."""

    def calls(critic, h, actions, state):
        def replaced(i, a):
            return critic(h, actions.at[i].set(a), state)

        each = jax.vmap(jax.vmap(replaced, in_axes=(None, 0)), in_axes=(0, None))
        return critic.counterfactual(h, actions, state), each(jnp.arange(N), jnp.arange(A))

    return quick_jit(calls)


@few(20)
@given(seed=seeds)
def test_a_counterfactual_value_is_that_of_the_joint_action_with_one_action_replaced(seed):
    critic = random_baseline(BASE, seed).networks.q_jt
    rng = np.random.default_rng(seed)
    h, state = (jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in ((N, 8), 6))
    actions = jnp.asarray(rng.integers(A, size=N), jnp.int32)
    at_once, one_by_one = critic_calls()(critic, h, actions, state)
    assert at_once.shape == (N, A)
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-4, atol=1e-5)
    expected = joint_value(in_numpy(critic), in_numpy(h), np.asarray(actions), in_numpy(state))
    np.testing.assert_allclose(
        taken(np.asarray(at_once), np.asarray(actions)), expected, rtol=1e-4, atol=1e-4
    )


# Updates


two = pytest.mark.parametrize(
    "algorithm", [pytest.param(small(recurrent=True), id="base-recurrent"), pytest.param(ALT, id="alt")]
)


@two
def test_an_update_is_one_step_with_all_networks_in_one_list(algorithm):
    assert_one_step(algorithm, [["q", "q_jt", "v_jt"]], 3)


def test_targets_are_copied_at_every_period_th_update_and_only_then():
    assert_targets_lag(ALT, ["q", "q_jt"])


@two
@few(3)
@given(seed=seeds)
def test_what_lies_behind_the_end_changes_no_update(algorithm, seed):
    assert_only_real_rows_count(algorithm, seed)


# Acting


@cache
def acts_of(algorithm: QTRAN | ValueDecomposition):
    """What is done in training, what after it, how likely that is, and the memory of both."""

    def acts(learner, memory, observation, key):
        explored = algorithm.explore(learner, memory, observation, key, STEP)
        executed = algorithm.execute(learner, memory, observation, key, sample=True)
        likely = [
            algorithm.log_prob(learner, memory, observation, actions) for actions, _ in (explored, executed)
        ]
        return explored, executed, likely

    return quick_jit(acts)


@pytest.mark.parametrize("recurrent", [False, True], ids=["feed-forward", "recurrent"])
@few(10)
@given(seed=seeds)
def test_agents_act_as_those_of_a_value_decomposition(recurrent, seed):
    algorithm = small(recurrent=recurrent)
    vdn = ValueDecomposition(**(SMALL | {"recurrent": recurrent, "mixer": Additive()}))
    learner, (memory, observation) = random_baseline(algorithm, seed), moment(algorithm, seed)
    networks = ValueNetworks(learner.networks.q, Sum())
    twin = LearnerState(networks, networks, learner.optimisers, learner.updates)
    key = jax.random.key(seed)
    ours = acts_of(algorithm)(learner, memory, observation, key)
    assert same(ours, acts_of(vdn)(twin, memory, observation, key))


@pytest.mark.parametrize("recurrent", [False, True], ids=["feed-forward", "recurrent"])
@few(10)
@given(seed=seeds)
def test_an_agent_executes_the_same_whatever_the_others_see(recurrent, seed):
    assert_decentralised(small(recurrent=recurrent), seed, sample=False)


@pytest.mark.parametrize("options", [{"opt_weight": -1.0}, {"nopt_weight": -0.1}, {"gamma": 2.0}])
def test_impossible_numbers_are_refused(options):
    with pytest.raises(UserError):
        small(**options)
