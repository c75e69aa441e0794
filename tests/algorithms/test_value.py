"""What VDN, QMIX and QPLEX promise: the team's best joint action is every agent's own; and how they learn."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from macpf.algorithms.learning import LearnerState
from macpf.algorithms.value import ValueDecomposition
from macpf.errors import UserError
from macpf.maths import UNAVAILABLE
from macpf.networks.mixers import Additive, Duplex, Hyper
from macpf.schedules import Constant, Linear
from macpf.types import Memory, Trajectory
from tests.algorithms.by_hand import (
    JOINT,
    SMALL,
    A,
    N,
    T,
    assert_decentralised,
    assert_drawn_from,
    assert_losses,
    assert_one_step,
    assert_only_real_rows_count,
    assert_targets_lag,
    ended,
    execute_of,
    features,
    gradients_of,
    in_numpy,
    losses_of,
    many_acts_of,
    mixed,
    moment,
    numbers,
    numbers_now,
    random_baseline,
    returns,
    size,
    taken,
    update_of,
)
from tests.helpers import SPEC, STEP, few, quick_jit, random_episode, random_episodes, seeds

VDN, QMIX, QPLEX = Additive(), Hyper(embed=4, hidden=8), Duplex(heads=2, layers=2, hidden=8)


def small(**options: Any) -> ValueDecomposition:
    """A value decomposition with few units and frequent target copies."""
    return ValueDecomposition(**(SMALL | options))


ALL = {
    f"{name}-{'recurrent' if recurrent else 'feed-forward'}": small(mixer=mixer, recurrent=recurrent)
    for name, mixer in (("vdn", VDN), ("qmix", QMIX), ("qplex", QPLEX))
    for recurrent in (False, True)
}


def those(*names: str) -> Any:
    """Parametrises with the algorithms of these names."""
    return pytest.mark.parametrize("algorithm", [pytest.param(ALL[name], id=name) for name in names])


# Individual-global-max


@cache
def tables_of(algorithm: ValueDecomposition):
    """At every step of an episode, the team's value of every joint action: [T, A^N]; and what is executed."""

    def value(learner: LearnerState, episode: Trajectory, t, actions):
        done = episode.actions.at[t].set(actions)
        episode = Trajectory(
            episode.observation, done, episode.reward, episode.terminated, episode.won, episode.mask
        )
        return algorithm.losses(learner.networks, learner.targets, episode)[1]["q_tot"][t]

    def tables(learner: LearnerState, episode: Trajectory):
        over_actions = jax.vmap(value, in_axes=(None, None, None, 0))
        over_steps = jax.vmap(over_actions, in_axes=(None, None, 0, None))

        def act(memory, row):
            observation, stored = row
            actions, after = algorithm.execute(learner, memory, observation, jax.random.key(0))
            return Memory(after.hidden, stored), actions

        start = algorithm.init_memory(SPEC)
        _, executed = jax.lax.scan(act, start, (episode.observation, episode.actions))
        return over_steps(learner, episode, jnp.arange(T), jnp.asarray(JOINT)), executed

    return quick_jit(tables)


def possible(avail: Any) -> np.ndarray:
    """Which joint actions are available to all."""
    return np.all(np.asarray(avail)[np.arange(N), JOINT], axis=-1)


@those(*ALL)
@few(6)
@given(seed=seeds)
def test_what_is_executed_is_the_best_joint_action_of_all_available_ones(algorithm, seed):
    learner, episode = random_baseline(algorithm, seed), random_episode(seed)
    tables, executed = tables_of(algorithm)(learner, episode)
    for t, table in enumerate(np.asarray(tables)):
        can = possible(episode.observation.avail[t])
        at = np.ravel_multi_index(np.asarray(executed[t]), [A] * N)
        assert can[at]
        assert table[at] >= table[can].max() - 1e-5 * np.abs(table).max()


@those(*ALL)
def test_a_better_joint_action_may_be_unavailable(algorithm):
    """Otherwise nothing above would show that unavailable ones are left out."""
    learner, episode = random_baseline(algorithm, 0), random_episode(0)
    tables, executed = tables_of(algorithm)(learner, episode)
    done = np.ravel_multi_index(np.asarray(executed[:T]).T, [A] * N)
    assert np.any(tables[np.arange(T), done] < np.max(tables, axis=1) - 0.1)


@those("vdn-feed-forward", "vdn-recurrent")
@few(6)
@given(seed=seeds)
def test_the_value_of_vdns_team_is_the_sum_of_its_agents(algorithm, seed):
    learner, episode = random_baseline(algorithm, seed), random_episode(seed)
    tables, _ = tables_of(algorithm)(learner, episode)
    q = values(learner.networks.q, episode)
    sums = [[np.sum(taken(q[t], actions)) for actions in JOINT] for t in range(T)]
    np.testing.assert_allclose(tables, sums, rtol=1e-4, atol=1e-4)


@those("qmix-feed-forward", "qmix-recurrent")
@few(6)
@given(seed=seeds)
def test_the_value_of_qmixs_team_never_falls_where_an_agents_rises(algorithm, seed):
    learner, episode = random_baseline(algorithm, seed), random_episode(seed)
    tables = np.asarray(tables_of(algorithm)(learner, episode)[0]).reshape(T, *[A] * N)
    q = values(learner.networks.q, episode)
    for t in range(T):
        for i in range(N):
            rising = np.take(tables[t], np.argsort(q[t, i]), axis=i)
            assert np.all(np.diff(rising, axis=i) >= -1e-5)
            assert np.any(np.diff(rising, axis=i) > 1e-3)


# The loss


def values(agent: Any, episode: Trajectory) -> np.ndarray:
    """What every agent says of its actions at every row."""
    network, rows = in_numpy((agent, episode))
    return numbers(network, features(network, rows))


def expected_loss(
    algorithm: ValueDecomposition, learner: LearnerState, episode: Trajectory
) -> dict[str, list]:
    """The squared error of the team's value at every real row."""
    networks, targets, rows = in_numpy((learner.networks, learner.targets, episode))
    q, q_hat = values(learner.networks.q, episode), values(learner.targets.q, episode)
    seen = rows.observation
    now, later = [], []
    for t in range(T + 1):
        legal = [np.flatnonzero(seen.avail[t, i]) for i in range(N)]
        judge = q if algorithm.double_q else q_hat
        chosen = [max(legal[i], key=lambda a, own=judge[t, i]: own[a]) for i in range(N)]
        v = np.array([q[t, i, legal[i]].max() for i in range(N)])
        v_hat = np.array([q_hat[t, i, legal[i]].max() for i in range(N)])
        done = rows.actions[t]
        now.append(mixed(networks.mixer, taken(q[t], done), v, done, seen.state[t]))
        later.append(mixed(targets.mixer, taken(q_hat[t], chosen), v_hat, chosen, seen.state[t]))
    ys = returns(rows, later, algorithm.gamma, algorithm.td_lambda)
    return {"loss": [(q_tot - y) ** 2 for q_tot, y in zip(now, ys, strict=False)]}


@pytest.mark.parametrize(
    "algorithm",
    [
        *[pytest.param(algorithm, id=name) for name, algorithm in ALL.items()],
        pytest.param(small(mixer=QMIX, double_q=False), id="qmix-single-q"),
        pytest.param(small(mixer=QPLEX, double_q=False, td_lambda=1.0), id="qplex-single-q-lambda-1"),
        pytest.param(small(mixer=VDN, td_lambda=0.6, gamma=0.7), id="vdn-lambda"),
    ],
)
@few(6)
@given(seed=seeds)
def test_the_loss_is_that_of_loops_over_steps_and_agents(algorithm, seed):
    learner, episode = random_baseline(algorithm, seed), random_episode(seed)
    for terminated in (False, True):
        episode, _ = ended(episode, terminated=terminated)
        rows = losses_of(algorithm)(learner, episode, jax.random.key(0))
        assert_losses(rows, episode, expected_loss(algorithm, learner, episode))


@those("vdn-feed-forward", "qmix-feed-forward", "qplex-feed-forward")
@few(8)
@given(seed=seeds)
def test_a_terminated_episode_has_no_future_and_one_cut_off_has(algorithm, seed):
    learner, episode = random_baseline(algorithm, seed), random_episode(seed)
    over, last = ended(episode, terminated=True)
    cut, _ = ended(episode, terminated=False)
    q_tot = float(team_values_of(algorithm)(learner, over)[last])
    losses = [losses_of(algorithm)(learner, e, jax.random.key(0))["loss"] for e in (over, cut)]
    np.testing.assert_allclose(losses[0][last], (q_tot - episode.reward[last]) ** 2, rtol=1e-4, atol=1e-4)
    assert losses[0][last] != losses[1][last]
    np.testing.assert_array_equal(losses[0][:last], losses[1][:last])


@cache
def team_values_of(algorithm: ValueDecomposition):
    """The team's value of what was done at every step."""
    return quick_jit(
        lambda learner, episode: algorithm.losses(learner.networks, learner.targets, episode)[1]["q_tot"]
    )


@those("vdn-feed-forward", "qmix-recurrent", "qplex-feed-forward")
@few(3)
@given(seed=seeds)
def test_what_lies_behind_the_end_changes_no_update(algorithm, seed):
    assert_only_real_rows_count(algorithm, seed)


# The update


@those("qmix-recurrent", "qplex-recurrent")
def test_the_loss_reaches_every_parameter_of_agents_and_mixer(algorithm):
    batches = [(random_baseline(algorithm, seed), random_episodes(seed, 3)) for seed in range(3)]
    gradients = [gradients_of(algorithm)(*batch, jax.random.key(0))["loss"] for batch in batches]
    sizes = jax.tree.map(lambda *leaves: max(size(leaf) for leaf in leaves), *gradients)
    assert all(jax.tree.leaves(jax.tree.map(lambda x: x > 0, sizes))), sizes


@those("vdn-feed-forward", "qmix-recurrent", "qplex-feed-forward")
def test_an_update_is_one_step_with_agents_and_mixer_in_one_list(algorithm):
    assert_one_step(algorithm, [["q", "mixer"]], 3)


@those("qmix-recurrent", "qplex-feed-forward")
def test_targets_are_copied_at_every_period_th_update_and_only_then(algorithm):
    assert_targets_lag(algorithm, ["q", "mixer"])


def test_targets_begin_as_copies():
    learner = quick_jit(lambda key: small(mixer=QPLEX).init(key, SPEC))(jax.random.key(0))
    assert jax.tree.all(jax.tree.map(np.array_equal, learner.networks, learner.targets))


def test_the_update_tells_the_loss_and_the_rate_of_exploration():
    algorithm = small(mixer=QMIX, epsilon=Linear(1.0, 0.0, 100))
    learner, batch = random_baseline(algorithm, 1), random_episodes(1, 3)
    _, metrics = update_of(algorithm)(learner, batch, jax.random.key(0), STEP + 25)
    episodes = [jax.tree.map(lambda leaf, b=b: leaf[b], batch) for b in range(3)]
    rows = np.concatenate([expected_loss(algorithm, learner, episode)["loss"] for episode in episodes])
    assert metrics.keys() == {"loss", "q_tot", "epsilon"}
    np.testing.assert_allclose(metrics["loss"], rows.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["epsilon"], 0.75, rtol=1e-6)


# Acting


def greedily(q: np.ndarray, avail: Any) -> np.ndarray:
    """The best available action of each agent."""
    return np.argmax(np.where(np.asarray(avail), q, -np.inf), axis=-1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("step", [0, 50])
def test_agents_do_anything_available_by_chance_epsilon_and_else_their_best(seed, step):
    algorithm = small(mixer=VDN, recurrent=True, epsilon=Linear(0.6, 0.2, 100))
    learner, (memory, observation) = random_baseline(algorithm, seed), moment(algorithm, seed)
    explored, _ = many_acts_of(algorithm)(learner, memory, observation, STEP + step)
    best = greedily(numbers_now(learner.networks.q, memory, observation), observation.avail)
    avail = np.asarray(observation.avail)
    epsilon = 0.6 - 0.4 * step / 100
    anything = avail / avail.sum(axis=-1, keepdims=True)
    assert_drawn_from(explored, epsilon * anything + (1 - epsilon) * np.eye(A)[best])


def test_without_epsilon_exploration_is_execution():
    algorithm = small(mixer=VDN, epsilon=Constant(0.0))
    for seed in range(5):
        learner, (memory, observation) = random_baseline(algorithm, seed), moment(algorithm, seed)
        best = greedily(numbers_now(learner.networks.q, memory, observation), observation.avail)
        explored, sampled = many_acts_of(algorithm)(learner, memory, observation, STEP)
        assert np.all(np.asarray(explored) == best)
        assert np.all(np.asarray(sampled) == best)  # nothing to sample, and the key is not looked at


@those("vdn-feed-forward", "qplex-recurrent")
@few(10)
@given(seed=seeds)
def test_execution_is_each_agents_best_available_action(algorithm, seed):
    learner, (memory, observation) = random_baseline(algorithm, seed), moment(algorithm, seed)
    actions, _ = execute_of(algorithm)(learner, memory, observation, jax.random.key(seed))
    q = numbers_now(learner.networks.q, memory, observation)
    np.testing.assert_array_equal(actions, greedily(q, observation.avail))


@those("qplex-feed-forward", "qplex-recurrent")
@few(10)
@given(seed=seeds)
def test_an_agent_executes_the_same_whatever_the_others_see(algorithm, seed):
    assert_decentralised(algorithm, seed, sample=False)


@few(5)
@given(seed=seeds)
def test_only_what_is_executed_is_likely(seed):
    algorithm = ALL["qmix-feed-forward"]
    learner, (memory, observation) = random_baseline(algorithm, seed), moment(algorithm, seed)
    actions, _ = execute_of(algorithm)(learner, memory, observation, jax.random.key(seed))
    done = (np.asarray(actions) == JOINT).all(axis=-1)
    likely = log_probs(algorithm, learner, memory, observation)
    np.testing.assert_array_equal(likely, np.where(done, 0.0, UNAVAILABLE))


@cache
def log_probs_of(algorithm: ValueDecomposition):
    """How likely every joint action is."""

    def log_probs(learner, memory, observation):
        every = jax.vmap(lambda actions: algorithm.log_prob(learner, memory, observation, actions))
        return every(jnp.asarray(JOINT))

    return quick_jit(log_probs)


def log_probs(algorithm: ValueDecomposition, learner: LearnerState, memory, observation) -> np.ndarray:
    """How likely the executed policy, the only one, makes every joint action."""
    by_policy = log_probs_of(algorithm)(learner, memory, observation)
    assert by_policy.keys() == algorithm.policies.keys() == {"ind"}
    return np.asarray(by_policy["ind"])


@pytest.mark.parametrize(
    "options", [{"gamma": 1.1}, {"gamma": -0.1}, {"td_lambda": 2.0}, {"hidden": 0}, {"target_period": 0}]
)
def test_impossible_numbers_are_refused(options):
    with pytest.raises(UserError):
        small(**options)
