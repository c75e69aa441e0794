"""macpf-plus: a critic with one solution, policies committed to one joint choice, and what moves what."""

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax, logsumexp

import macpf
from macpf.algorithms import ALGORITHMS
from macpf.algorithms.acting import explore
from macpf.algorithms.learning import LearnerState, mixed
from macpf.algorithms.macpf import MACPF, Losses, Networks
from macpf.errors import UserError
from macpf.maths import log_softmax as jax_log_softmax
from macpf.networks.agents import see
from macpf.networks.corrections import pooled
from macpf.networks.mixers import Additive, Advantage, Attention, Hyper
from macpf.optim import RMSprop
from macpf.reproduce.matrix_game import joint_policy
from macpf.schedules import Constant, Linear
from macpf.training import train
from macpf.types import Memory, Observation, Trajectory
from tests.algorithms.by_hand import in_numpy, layers
from tests.games import Gamble, Hint
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
JOINT = np.asarray(list(product(range(A), repeat=N)))
ALPHA = 0.3  # of the tiny algorithms
KEY = jax.random.key(0)


def plus(**options: Any) -> MACPF:
    """A small macpf-plus."""
    own: dict[str, Any] = {
        "mixer": Advantage(8),
        "extraction": "committed",
        "targets": "value",
        "entropy_reduce": "sum",
        "improvement": "imitation",
        "deep": True,
    }
    return tiny(**(own | options))


PLUS = plus()

both_bodies = pytest.mark.parametrize("recurrent", [False, True], ids=["feed-forward", "recurrent"])


def test_the_small_one_differs_from_the_named_one_in_its_size_alone():
    named: Any = ALGORITHMS["macpf-plus"].make()
    options = ("extraction", "targets", "improvement", "deep", "entropy_reduce", "delta", "alpha_ind")
    for option in (*options, "dep_pool", "mixer_grad"):
        assert getattr(PLUS, option) == getattr(named, option), option
    assert isinstance(named.mixer, Advantage)


def moment(seed: int, algorithm: MACPF) -> tuple[Memory, Observation]:
    """A random moment in the middle of an episode."""
    rng = np.random.default_rng(seed)
    hidden = rng.uniform(-1, 1, algorithm.init_memory(SPEC).hidden.shape)
    previous = jnp.asarray(rng.integers(-1, A, N), jnp.int32)
    return Memory(jnp.asarray(hidden, jnp.float32), previous), random_observation(rng, ())


# The critic


@cache
def joint_values_of(algorithm: MACPF):
    """Every agent's values in its place of the chain, Q_jt after every joint action, and V(s)."""

    def values(networks: Networks, memory: Memory, observation: Observation):
        q, h, _ = see(networks.q_ind, memory, observation)
        weight = pooled(algorithm._critic_depends(observation.visible), algorithm.dep_pool)
        chain = networks.c_dep.chain(q, jax.vmap(networks.c_dep.own)(h), weight)
        of_each = jax.vmap(chain)(jnp.asarray(JOINT))
        rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(JOINT), *x.shape)), observation)
        alpha = algorithm.alpha(STEP)
        q_jt = mixed(networks.mixer, of_each, jnp.asarray(JOINT), rows, alpha)
        return of_each, q_jt, networks.mixer.value(observation.state)[0]  # type: ignore[attr-defined]

    return quick_jit(values)


@pytest.mark.parametrize("algorithm", [PLUS, plus(deep=False, dep_mask="all")], ids=["deep", "shallow"])
@few(15)
@given(seed=seeds)
def test_the_critic_is_the_value_of_the_state_and_a_temperature_times_a_log_policy(algorithm, seed):
    memory, observation = moment(seed, algorithm)
    networks = random_learner(algorithm, seed).networks
    found = joint_values_of(algorithm)(networks, memory, observation)
    of_each, q_jt, value = (np.asarray(x, np.float64) for x in found)
    avail = np.asarray(observation.avail)
    possible = avail[np.arange(N), JOINT].all(axis=1)
    assert_allclose(ALPHA * np.asarray(logsumexp(q_jt[possible] / ALPHA)), value, rtol=1e-4, atol=1e-4)
    log_pi = log_softmax(np.where(avail, of_each / ALPHA, -np.inf), axis=-1)
    log_pi_jt = np.take_along_axis(log_pi, JOINT[..., None], axis=-1).sum((1, 2))
    assert_allclose((q_jt - value)[possible], ALPHA * log_pi_jt[possible], rtol=1e-4, atol=1e-4)
    assert_allclose(np.exp(log_pi_jt[possible]).sum(), 1, rtol=1e-5)


# The targets


@cache
def losses_of(algorithm: MACPF):
    """The four losses at every step of an episode."""

    def losses(networks: Networks, targets: Any, episode: Trajectory, key: Any) -> Losses:
        return algorithm.losses(Losses(*[networks] * 4), targets, episode, key, STEP)[0]

    return quick_jit(losses)


ENDS = [(length, terminated) for length in (1, 3, T) for terminated in (False, True)]


@pytest.mark.parametrize(("length", "terminated"), ENDS)
def test_a_target_is_the_reward_and_the_value_of_the_next_state(length: int, terminated: bool):
    """A critic of zeros values every joint action at -alpha times the log of how many there are."""
    algorithm = plus(td_lambda=0.0, gamma=0.9)
    rows = jnp.arange(T + 1)
    episode = eqx.tree_at(
        lambda e: (e.mask, e.terminated),
        random_episode(length),
        (rows < length, (rows == length - 1) & terminated),
    )
    learner = random_learner(algorithm, length)
    nothing = jax.tree.map(jnp.zeros_like, learner.networks)
    found = losses_of(algorithm)(nothing, learner.targets, episode, jax.random.key(0)).l_dep
    value, seen = in_numpy(learner.targets.mixer.value), in_numpy(episode.observation)
    for t in range(length):
        over = terminated and t == length - 1
        y = float(episode.reward[t]) + 0.9 * (not over) * layers(value, seen.state[t + 1])[0]
        q_jt = -ALPHA * np.log(seen.avail[t].sum(axis=-1)).sum()
        assert_allclose(found[t], (q_jt - y) ** 2, rtol=1e-4, atol=1e-4)


def test_the_value_of_the_next_state_needs_no_luck():
    learner, episode = random_learner(PLUS, 3), random_episode(3)
    by_luck = {}
    for targets in ("value", "sampled"):
        of = losses_of(replace(PLUS, targets=targets))
        one, two = (of(learner.networks, learner.targets, episode, jax.random.key(k)) for k in (0, 1))
        by_luck[targets] = not np.array_equal(one.l_dep, two.l_dep)
        assert not np.array_equal(one.j_dep, two.j_dep)
    assert by_luck == {"value": False, "sampled": True}


# Committed extraction


@cache
def committed_values_of(algorithm: MACPF):
    """The dependent critic's chain over an episode, and what a committed policy learns from it."""

    def values(networks: Networks, l_ind: Any, q: Any, h: Any, weight: Any, avail: Any):
        chain = networks.c_dep.chain(q, jax.vmap(jax.vmap(networks.c_dep.own))(h), weight)
        return chain, algorithm.committed_values(l_ind, chain, avail)

    return quick_jit(values)


@pytest.mark.parametrize("deep", [True, False])
@few(10)
@given(seed=seeds)
def test_a_committed_policy_learns_from_the_dependent_critic_where_all_are_greedy(deep, seed):
    algorithm = plus(delta=0.7, deep=deep)
    rng = np.random.default_rng(seed)
    rows = T + 1
    l_ind, q, h, weight = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((rows, N, A), (rows, N, A), (rows, N, algorithm.hidden), (rows, N, N))
    )
    weight = np.tril(weight, -1)
    avail = np.asarray(random_observation(rng, (rows,)).avail)
    networks = random_learner(algorithm, seed).networks
    c: Any = in_numpy(networks.c_dep)
    _, found = committed_values_of(algorithm)(networks, l_ind, q, h, weight, avail)
    for t in range(rows):
        greedy = [max(np.flatnonzero(avail[t, i]), key=lambda a, t=t, i=i: l_ind[t, i, a]) for i in range(N)]
        for i in range(N):
            x = h[t, i] @ c.w2_own + c.b2
            for j in range(i):
                e = c.w1_id[j] + c.w1_action[greedy[j]] + c.b1
                x = x + weight[t, i, j] * np.where(e > 0, e, np.expm1(np.minimum(e, 0))) @ c.w2_told
            expected = q[t, i] + (np.maximum(x, 0) @ c.w3 if deep else x)
            expected[greedy[i]] += 0.7
            assert_allclose(found[t, i], expected, rtol=1e-4, atol=1e-4)


def test_what_the_dependent_policy_prefers_does_not_change_what_the_independent_one_learns():
    """J_ind asks for greedy prefixes of pi_ind, so other dependent policies leave its step as it is."""
    learner, batch, key = random_learner(PLUS, 4), random_episodes(4, 3), jax.random.key(4)
    changed = learner.networks._replace(b_dep=jax.tree.map(lambda x: x + 0.5, learner.networks.b_dep))
    other = LearnerState(changed, learner.targets, learner.optimisers, learner.updates)
    one, two = (update_of(PLUS)(start, batch, key, STEP)[0].networks for start in (learner, other))
    assert same(one.pi_ind, two.pi_ind)
    assert same((one.q_ind, one.c_dep, one.mixer), (two.q_ind, two.c_dep, two.mixer))
    assert not same(one.b_dep, two.b_dep)


# How policies improve


@pytest.mark.parametrize("alpha_ind", [1.0, 0.25])
def test_an_imitating_policy_loses_its_cross_entropy_to_the_critic_s_softmax(alpha_ind: float):
    algorithm = plus(alpha_ind=alpha_ind)
    rng = np.random.default_rng(9)
    logits, q = rng.standard_normal((2, T, N, A))
    avail = np.asarray(random_observation(rng, (T,)).avail)
    log_pi, log_best = (
        log_softmax(np.where(avail, x, -np.inf), axis=-1) for x in (logits, q / (alpha_ind * ALPHA))
    )
    best = np.exp(log_best)
    expected = -np.where(avail, best * np.where(avail, log_pi, 0.0), 0.0).sum(axis=-1).mean(axis=-1)
    log_pi = jnp.asarray(np.where(avail, log_pi, -1e9), jnp.float32)
    alpha = jnp.asarray(alpha_ind * ALPHA, jnp.float32)
    found = algorithm.policy_loss(log_pi, jnp.asarray(q, jnp.float32), jnp.asarray(avail), alpha)
    assert_allclose(found, expected, rtol=1e-4)


def test_a_temperature_of_its_own_changes_what_the_independent_policy_learns_and_nothing_else():
    warm, cold = plus(alpha_ind=1.0), plus(alpha_ind=0.25)
    learner, batch, key = random_learner(warm, 10), random_episodes(10, 3), jax.random.key(10)
    one, two = (update_of(algorithm)(learner, batch, key, STEP)[0].networks for algorithm in (warm, cold))
    assert not same(one.pi_ind, two.pi_ind)
    assert same(one._replace(pi_ind=two.pi_ind), two)


def test_expecting_changes_what_the_independent_policy_learns_and_nothing_else():
    imitates, expects = plus(), plus(improvement="expectation")
    learner, batch, key = random_learner(imitates, 12), random_episodes(12, 3), jax.random.key(12)
    one, two = (
        update_of(algorithm)(learner, batch, key, STEP)[0].networks for algorithm in (imitates, expects)
    )
    assert not close(one.pi_ind, two.pi_ind, 1e-3)
    assert close(one._replace(pi_ind=two.pi_ind), two)


def test_the_way_of_improving_changes_what_policies_learn_and_nothing_else():
    imitates, paper = plus(), plus(improvement="paper")
    learner, batch, key = random_learner(paper, 11), random_episodes(11, 3), jax.random.key(11)
    one, two = (
        update_of(algorithm)(learner, batch, key, STEP)[0].networks for algorithm in (imitates, paper)
    )
    assert not same(one.pi_ind, two.pi_ind)
    assert not same(one.b_dep, two.b_dep)
    assert same(one._replace(pi_ind=two.pi_ind, b_dep=two.b_dep), two)


# What each loss moves


MOVES = {"j_ind": {"pi_ind"}, "j_dep": {"b_dep"}, "l_ind": set(), "l_dep": {"q_ind", "c_dep", "mixer"}}


def size(tree: Any) -> float:
    """The largest absolute number of a tree."""
    return max(float(np.max(np.abs(leaf), initial=0.0)) for leaf in jax.tree.leaves(tree))


@both_bodies
@few(4)
@given(seed=seeds)
def test_a_loss_has_a_gradient_for_what_it_moves_and_none_for_the_rest(recurrent, seed):
    algorithm = plus(recurrent=recurrent)
    learner, batch = random_learner(algorithm, seed), random_episodes(seed, 3)
    gradients = gradients_of(algorithm)(learner, batch, jax.random.key(seed))
    for row, loss in enumerate(Losses._fields):
        for argument, networks in zip(Losses._fields, gradients, strict=True):
            moved = MOVES[loss] if argument == loss else set()
            for name, part in networks._asdict().items():
                gradient = size(jax.tree.map(lambda leaf, row=row: leaf[row], part))
                assert (gradient > 0) == (name in moved), (loss, argument, name, gradient)


def test_the_independent_critic_has_no_loss_of_its_own():
    learner, batch = random_learner(PLUS, 5), random_episodes(5, 3)
    _, metrics = update_of(PLUS)(learner, batch, jax.random.key(5), STEP)
    assert metrics["l_ind"] == 0
    assert min(float(metrics[name]) for name in ("l_dep", "entropy_ind", "entropy_dep")) > 0


def test_an_update_takes_one_step_on_every_network_by_its_own_gradient():
    """The mean squares of RMSprop after one step are (1 - decay) times the squares of that gradient."""
    algorithm = plus(optimiser=RMSprop(lr=1e-2, decay=0.9, eps=1e-3, clip=1e9))
    learner, batch, key = random_learner(algorithm, 6), random_episodes(6, 3), jax.random.key(6)
    after, _ = update_of(algorithm)(learner, batch, key, STEP)
    gradients = gradients_of(algorithm)(learner, batch, key)
    assert jax.tree.structure(after) == jax.tree.structure(learner)
    assert set(after.optimisers) == set(Networks._fields)
    for row, (loss, names) in enumerate(MOVES.items()):
        for name in names:
            gradient = jax.tree.leaves(getattr(getattr(gradients, loss), name))
            steps = jax.tree.leaves(
                jax.tree.map(
                    lambda new, old: new - old, *(getattr(x.networks, name) for x in (after, learner))
                )
            )
            (squares,) = jax.tree.leaves(after.optimisers[name])
            g, step = (
                np.concatenate([np.ravel(x) for x in xs]) for xs in ([g[row] for g in gradient], steps)
            )
            g = g.astype(np.float64)
            assert_allclose(squares, 0.1 * g**2, rtol=1e-3, atol=1e-8)
            assert_allclose(step, -1e-2 * g / (np.sqrt(0.1) * np.abs(g) + 1e-3), rtol=1e-2, atol=1e-5)


def test_a_shared_optimiser_keeps_two_states():
    algorithm = plus(shared_optimiser=True)
    learner = random_learner(algorithm, 7)
    after, _ = update_of(algorithm)(learner, random_episodes(7, 3), jax.random.key(7), STEP)
    assert set(after.optimisers) == {"pi_ind+b_dep", "q_ind+c_dep+mixer"}
    assert jax.tree.structure(after) == jax.tree.structure(learner)
    for name, network in after.networks._asdict().items():
        assert not same(network, getattr(learner.networks, name)), name


def test_critics_take_as_many_times_the_step_as_they_are_told():
    slow, fast = plus(critic_speed=1.0), plus(critic_speed=3.0)
    learner, batch, key = random_learner(slow, 8), random_episodes(8, 3), jax.random.key(8)
    one, three = (update_of(algorithm)(learner, batch, key, STEP)[0] for algorithm in (slow, fast))
    assert same((one.networks.pi_ind, one.networks.b_dep), (three.networks.pi_ind, three.networks.b_dep))
    assert same(one.optimisers, three.optimisers)
    for name in ("q_ind", "c_dep", "mixer"):
        parts = (jax.tree.leaves(getattr(x, name)) for x in (learner.networks, one.networks, three.networks))
        for start, near, far in zip(*parts, strict=True):
            assert size(near - start) > 0
            assert_allclose(far - start, 3 * (near - start), rtol=1e-3, atol=1e-6)


# Who depends on whom


@cache
def dependent_logits_of(algorithm: MACPF):
    """The dependent logits after every joint action: [A^N, N, A]."""

    def logits(learner: LearnerState, memory: Memory, observation: Observation):
        chain, _, _ = algorithm._chain_now(learner.networks, memory, observation)
        return jax.vmap(chain)(jnp.asarray(JOINT))

    return quick_jit(logits)


@pytest.mark.parametrize(
    ("groups", "order"),
    [(None, np.tril(np.ones((N, N), bool), -1)), (2, np.array([[0, 0, 0], [0, 0, 0], [1, 1, 0]], bool))],
)
@few(8)
@given(seed=seeds)
def test_dependent_logits_depend_on_predecessors_alone(groups, order, seed):
    algorithm = plus(groups=groups, dep_mask="all")
    logits = dependent_logits_of(algorithm)(random_learner(algorithm, seed), *moment(seed, algorithm))
    table = np.asarray(logits).reshape(*[A] * N, N, A)
    for i, j in product(range(N), repeat=2):
        changes = np.ptp(table[..., i, :], axis=j)
        assert bool(np.any(changes != 0)) == order[i, j], (i, j)


def test_the_dependent_policy_does_not_stand_on_the_committed_one():
    learner = random_learner(PLUS, 9)
    head = jax.tree.map(
        lambda x: x + jnp.cos(jnp.arange(x.size)).reshape(x.shape), learner.networks.pi_ind.head
    )
    other = eqx.tree_at(lambda x: x.networks.pi_ind.head, learner, head)
    one, two = (dependent_logits_of(PLUS)(start, *moment(9, PLUS)) for start in (learner, other))
    assert_array_equal(one, two)


@cache
def chosen_of(algorithm: MACPF):
    """What the behaviour and the dependent policy choose, for many keys."""

    def chosen(learner, memory, observation, keys):
        def by(key):
            return (
                algorithm.explore(learner, memory, observation, key, STEP)[0],
                algorithm.execute_dep(learner, memory, observation, key, sample=True)[0],
                algorithm.execute_dep(learner, memory, observation, key)[0],
            )

        return jax.vmap(by)(keys)

    return quick_jit(chosen)


@pytest.mark.parametrize("groups", [None, 2])
def test_both_samplers_choose_alike(groups):
    in_turn = plus(groups=groups, epsilon_mode="behaviour")
    at_once = replace(in_turn, sampler="at-once")
    keys = jax.random.split(jax.random.key(0), 100)
    for seed in range(4):
        learner, now = random_learner(in_turn, seed), moment(seed, in_turn)
        one, two = (chosen_of(algorithm)(learner, *now, keys) for algorithm in (in_turn, at_once))
        assert same(one, two)
        assert len(np.unique(np.asarray(one[1]), axis=0)) > 1


def test_without_dependence_agents_explore_by_their_independent_policies():
    always, never = plus(dependence=Constant(1.0)), plus(dependence=Constant(0.0))
    learner, (memory, now) = random_learner(never, 5), moment(5, never)
    keys = jax.random.split(jax.random.key(1), 200)

    def alone(key):
        return explore(learner.networks.pi_ind, memory, now, key, jax_log_softmax, 0.0)[0]

    told, own = (chosen_of(algorithm)(learner, memory, now, keys)[0] for algorithm in (always, never))
    assert_array_equal(own, jax.vmap(alone)(keys))
    assert (np.asarray(told) != np.asarray(own)).any(axis=1).mean() > 0.2


# Mistakes


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"targets": "value", "mixer": Hyper()}, "targets must be sampled"),
        ({"targets": "value", "mixer": Additive()}, "targets must be sampled"),
        ({"targets": "value", "mixer": Attention()}, "targets must be sampled"),
        ({"extraction": "committed", "dependent": False}, "committed extraction needs dependent policies"),
        ({"delta": -0.1}, "delta must not be negative, not -0.1"),
        ({"critic_speed": 0.0}, "critic_speed must be positive, not 0.0"),
        ({"critic_speed": -1.0}, "critic_speed must be positive, not -1.0"),
        ({"groups": 0}, "groups must be positive, not 0"),
    ],
)
def test_options_that_do_not_fit_are_a_sentence(options: dict[str, Any], sentence: str):
    with pytest.raises(UserError, match=sentence):
        MACPF(**options)


def test_a_mixer_needs_units_and_layers():
    for sizes in ((0, 1), (8, 0)):
        with pytest.raises(UserError, match="positive"):
            Advantage(*sizes)


def test_the_value_of_a_state_has_as_many_layers_as_asked_for():
    made = Advantage(hidden=8, layers=3).make(jax.random.key(0), macpf.make("matrix-game").spec)
    assert [layer.out_features for layer in made.value.layers] == [8, 8, 8, 1]


# Learning


def test_both_policies_find_an_optimum_behind_punishment_and_the_dependent_one_keeps_both():
    """Eight seeds of the preset but for fewer units."""
    made = macpf.experiment("macpf-plus", "matrix-game")
    experiment = replace(
        made, algorithm=replace(made.algorithm, hidden=32), steps=600, eval_every=600, batch=32, burn_in=32
    )

    def run(key):
        state, record = train(experiment, key)
        return record.scores, joint_policy(experiment, state.learner)["pi_dep"]

    scores, pi_dep = quick_jit(jax.vmap(run))(jax.vmap(jax.random.key)(jnp.arange(8)))
    for policy in ("ind", "dep"):
        assert (scores[policy].returns[:, -1, 0] == 8.0).sum() >= 7, policy
    assert_allclose(pi_dep.sum((1, 2)), 1, rtol=1e-4)
    lesser = np.minimum(pi_dep[:, 0, 0], pi_dep[:, 3, 3])
    assert (lesser >= 0.3).sum() >= 7, lesser


def learned(game: Gamble | Hint, steps: int, **options: Any) -> dict[str, np.ndarray]:
    """What the greedy policies of four seeds of a small macpf-plus get in a game."""
    made = macpf.experiment("macpf-plus", game)
    algorithm = replace(
        made.algorithm,
        recurrent=False,
        hidden=32,
        mixer=Advantage(32),
        optimiser=RMSprop(lr=3e-3),
        alpha=Linear(1.0, 0.2, steps // 3),
        epsilon=Linear(1.0, 0.1, steps // 3),
        **options,
    )
    sizes = {"steps": steps, "eval_every": steps, "eval_episodes": 400, "batch": 32, "burn_in": 64}
    experiment = replace(made, algorithm=algorithm, parallel=4, replay=1000, **sizes)
    scores = quick_jit(jax.vmap(lambda key: train(experiment, key)[1].scores))(jax.random.split(KEY, 4))
    return {name: np.asarray(score.returns[:, -1].mean(axis=-1)) for name, score in scores.items()}


def test_who_does_not_see_the_coin_bets_on_what_is_best_on_average():
    """What the first agent does tells the second's critic the coin, but not its policy."""
    returns = learned(Gamble(), 4000, improvement="expectation")
    assert_allclose(returns["ind"], 9.0, atol=0.5)
    assert (returns["dep"] > 9.7).sum() >= 3  # told what the first does, it wins every time: 10.2


def test_who_learns_from_what_it_did_when_it_was_told_takes_its_own_actions_for_knowledge():
    """Alone, what the second agent named says nothing of the coin; with pi_dep it did."""
    told = learned(Hint(), 6000)
    alone = learned(Hint(), 6000, dependence=Linear(1.0, 0.0, 3000))
    assert_allclose(told["ind"], 7.6, atol=0.4)  # it bets
    assert (told["dep"] > 11.5).sum() >= 3  # it knows, and wins: 12
    assert_allclose(alone["ind"], 9.6, atol=0.4)
