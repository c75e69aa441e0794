"""MACPF's options against a second implementation of it: loops over steps and agents, in double precision."""

from dataclasses import replace
from functools import cache
from itertools import combinations, product
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given

from macpf.algorithms.learning import LearnerState
from macpf.algorithms.macpf import MACPF, Losses, Networks
from macpf.errors import UserError
from macpf.networks.agents import Recurrent
from macpf.networks.mixers import Advantage, Hyper
from macpf.optim import Adam, RMSprop
from macpf.schedules import Constant
from macpf.types import Observation, Trajectory
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
    seeds,
    tiny,
    update_of,
)

N, A, T = SPEC.n_agents, SPEC.n_actions, SPEC.horizon
ALPHA, EPSILON = 0.3, 0.4  # those of `tiny`
JOINT = list(product(range(A), repeat=N))


def in_numpy(tree: Any) -> Any:
    """The same tree with numpy arrays, numbers in double precision."""

    def convert(leaf):
        array = np.asarray(leaf)
        return array.astype(np.float64) if array.dtype == np.float32 else array

    return jax.tree.map(convert, tree)


# The second implementation; learners and episodes are in numpy


class Row(NamedTuple):
    """What one row of an episode comes to, for the independent or for the dependent policy and critic."""

    p: np.ndarray  # probabilities [N, A]
    q: np.ndarray  # values [N, A]
    joint: float  # the joint value of the stored actions
    value: float  # the target networks' joint value of the actions drawn
    log_pi: float  # their log-probability


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    p = np.exp(x - x.max())
    return p / p.sum()


def safe_log(p):
    return np.log(np.where(p > 0, p, 1))


def linear(layer: Any, x):
    return layer.weight @ x + layer.bias


def two_layers(net: Any, x):
    first, second = net.layers
    return linear(second, np.maximum(linear(first, x), 0))


def advance(body: Any, x, h):
    """The features of one agent at one moment, by those of the moment before."""
    if not isinstance(body, Recurrent):
        return np.maximum(linear(body.layers.layers[0], x), 0)
    y = np.maximum(linear(body.layer, x), 0)
    cell: Any = body.cell
    ri, zi, ni = np.split(cell.weight_ih @ y + cell.bias, 3)
    rh, zh, nh = np.split(cell.weight_hh @ h, 3)
    reset, update = sigmoid(ri + rh), sigmoid(zi + zh)
    return (1 - update) * np.tanh(ni + reset * (nh + cell.bias_n)) + update * h


def agent_input(obs, i: int, previous: int):
    """Agent i's observation, previous action and index."""
    return np.concatenate([obs[i], np.arange(A) == previous, np.arange(N) == i])


def features(agent: Any, episode: Any):
    """The features of every agent at every row of an episode."""
    rows = [[np.zeros(agent.head.in_features)] * N]
    for t in range(T + 1):
        previous = episode.actions[t - 1] if t > 0 else [-1] * N
        xs = [agent_input(episode.observation.obs[t], i, previous[i]) for i in range(N)]
        rows.append([advance(agent.body, xs[i], rows[-1][i]) for i in range(N)])
    return rows[1:]


def told_of(algorithm: MACPF, visible, i: int, *, critic: bool) -> list[int]:
    """Whose actions agent i's correction is told of."""
    groups = algorithm.groups or N
    if critic and algorithm.critic_dep_scope == "visible":
        others = [j for j in range(N) if j != i and i > 0]
    else:
        others = [j for j in range(N) if j * groups // N < i * groups // N]
    return [j for j in others if visible[i, j] or algorithm.dep_mask == "all"]


def correction(algorithm: MACPF, net: Any, h, told: list[int], actions):
    """W2 [h ; z] + b2, with z the pooled embeddings of what those told of do."""
    z = np.zeros(len(net.b1))
    for j in told:
        x = net.w1_id[j] + net.w1_action[actions[j]] + net.b1
        z = z + np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    z = z / {"sum/N": N, "mean": max(len(told), 1), "sum": 1}[algorithm.dep_pool]
    return np.concatenate([h, z]) @ np.vstack([net.w2_own, net.w2_told]) + net.b2


def mixed(mixer: Any, values, state) -> float:
    """The joint value: a weighted sum, with weights >= 0 by the state."""
    w1, w2 = np.abs(two_layers(mixer.w1, state)), np.abs(two_layers(mixer.w2, state))
    hidden = linear(mixer.b1, state)
    for i, value in enumerate(values):
        hidden = hidden + value * w1[i * len(w2) : (i + 1) * len(w2)]
    return float(hidden @ w2 + two_layers(mixer.v, state)[0])


def policy(algorithm: MACPF, logits, avail, epsilon: float = EPSILON):
    """The probabilities of training."""
    p = softmax(logits)
    if algorithm.epsilon_mode == "everywhere":
        p = (1 - epsilon) * p + epsilon / A
    return p * avail / (p * avail).sum()


def drawn(p, luck: float) -> int:
    """The first action at which the cumulative probability exceeds the luck."""
    return int(np.argmax(np.cumsum(p) > luck))


def taken(values, actions) -> list[float]:
    """The number of each agent's own action."""
    return [values[i][actions[i]] for i in range(N)]


def log_pi(algorithm: MACPF, p, actions) -> float:
    """The log-probability of a joint action: a sum, or the mean."""
    logs = np.log(taken(p, actions))
    return float(logs.sum() if algorithm.entropy_reduce == "sum" else logs.mean())


def independent_row(algorithm: MACPF, learner: Any, episode: Any, hs: Any, t: int, luck) -> Row:
    """Row t by what every agent knows itself."""
    seen, networks, targets = episode.observation, learner.networks, learner.targets
    h_pi, h_q, h_hat = (h[t] for h in hs)
    logits = [linear(networks.pi_ind.head, h) for h in h_pi]
    p = np.stack([policy(algorithm, logits[i], seen.avail[t, i]) for i in range(N)])
    q = np.stack([linear(networks.q_ind.head, h) for h in h_q])
    q_hat = [linear(targets.q_ind.head, h) for h in h_hat]
    actions = [drawn(p[i], luck[i]) for i in range(N)]
    joint = mixed(networks.mixer, taken(q, episode.actions[t]), seen.state[t])
    value = mixed(targets.mixer, taken(q_hat, actions), seen.state[t])
    return Row(p, q, joint, value, log_pi(algorithm, p, actions))


def dependent_row(algorithm: MACPF, learner: Any, episode: Any, hs: Any, t: int, luck) -> Row:
    """Row t with every agent told what others do."""
    seen, networks, targets = episode.observation, learner.networks, learner.targets
    h_pi, h_q, h_hat = (h[t] for h in hs)
    p, actions = np.zeros((N, A)), [-1] * N
    for i in range(N):  # in the order of the chain
        told = told_of(algorithm, seen.visible[t], i, critic=False)
        b = correction(algorithm, networks.b_dep, h_pi[i], told, actions)
        p[i] = policy(algorithm, linear(networks.pi_ind.head, h_pi[i]) + b, seen.avail[t, i])
        actions[i] = drawn(p[i], luck[i])

    def values(nets: Any, hs, given):
        told = [told_of(algorithm, seen.visible[t], i, critic=True) for i in range(N)]
        cs = [correction(algorithm, nets.c_dep, hs[i], told[i], given) for i in range(N)]
        return np.stack([linear(nets.q_ind.head, hs[i]) + cs[i] for i in range(N)])

    stored = episode.actions[t]
    joint = mixed(networks.mixer, taken(values(networks, h_q, stored), stored), seen.state[t])
    value = mixed(targets.mixer, taken(values(targets, h_hat, actions), actions), seen.state[t])
    return Row(p, values(networks, h_q, actions), joint, value, log_pi(algorithm, p, actions))


def expected_targets(algorithm: MACPF, episode: Any, rows: list[Row]) -> list[float]:
    """The targets of the real rows, from the last to the first."""
    length, gamma, lam = int(episode.mask.sum()), algorithm.gamma, algorithm.td_lambda
    returns = [float(reward) for reward in episode.reward[:length]]
    for t in reversed(range(length)):
        if not episode.terminated[t]:
            later = returns[t + 1] if t + 1 < length else rows[t + 1].value
            returns[t] += gamma * ((1 - lam) * rows[t + 1].value + lam * later)
    for t in range(length):
        if algorithm.entropy_terminal == "always":
            returns[t] -= ALPHA * rows[t + 1].log_pi
        elif not episode.terminated[t]:
            returns[t] -= gamma * ALPHA * rows[t + 1].log_pi
    return returns


def expected_losses(algorithm: MACPF, learner: Any, episode: Any, luck) -> dict[str, list[float]]:
    """The four losses and the two entropies at every real row."""
    nets = (learner.networks.pi_ind, learner.networks.q_ind, learner.targets.q_ind)
    hs = [features(net, episode) for net in nets]
    expected = {}
    for name, make, lucks in (("ind", independent_row, luck[0]), ("dep", dependent_row, luck[1])):
        rows = [make(algorithm, learner, episode, hs, t, lucks[t]) for t in range(T + 1)]
        real = rows[: int(episode.mask.sum())]
        targets = expected_targets(algorithm, episode, rows)
        expected[f"j_{name}"] = [np.sum(row.p * (ALPHA * safe_log(row.p) - row.q)) / N for row in real]
        expected[f"entropy_{name}"] = [-np.sum(row.p * safe_log(row.p)) / N for row in real]
        expected[f"l_{name}"] = [(row.joint - y) ** 2 for row, y in zip(real, targets, strict=True)]
    return expected


# Losses


@cache
def losses_of(algorithm: MACPF):
    """The losses of one episode, and its metrics, by name."""

    def losses(learner: LearnerState, episode: Trajectory, key):
        by = Losses(*[learner.networks] * 4)
        rows, metrics = algorithm.losses(by, learner.targets, episode, key, STEP)
        return {**rows._asdict(), **metrics}

    return quick_jit(losses)


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(tiny(), id="default"),
        pytest.param(tiny(recurrent=True), id="recurrent"),
        pytest.param(tiny(td_lambda=0.0, entropy_reduce="sum", dep_mask="all"), id="paper"),
        pytest.param(
            tiny(
                recurrent=True,
                entropy_terminal="always",
                critic_dep_scope="visible",
                dep_grad_through_trunk=True,
                epsilon_mode="everywhere",
                shared_optimiser=True,
            ),
            id="published-code",
        ),
        pytest.param(
            tiny(td_lambda=0.0, critic_dep_scope="visible", dep_pool="mean", sampler="at-once"), id="mean"
        ),
        pytest.param(tiny(td_lambda=1.0, dep_mask="all", dep_pool="sum", groups=2, gamma=0.8), id="groups"),
        pytest.param(
            tiny(critic_dep_scope="visible", dep_mask="all", entropy_reduce="sum", entropy_terminal="always"),
            id="all-visible",
        ),
    ],
)
@few(6)
@given(seed=seeds)
def test_losses_are_those_of_loops_over_steps_and_agents(algorithm, seed):
    learner, episode, key = random_learner(algorithm, seed), random_episode(seed), jax.random.key(seed)
    luck = np.asarray(jax.random.uniform(key, (2, T + 1, N)))
    expected = expected_losses(algorithm, in_numpy(learner), in_numpy(episode), luck)
    rows = losses_of(algorithm)(learner, episode, key)
    real = np.asarray(episode.mask[:-1])
    assert rows.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(np.asarray(rows[name])[real], values, rtol=2e-4, atol=2e-4, err_msg=name)


# Optimisers

MOVES = {"j_ind": {"pi_ind"}, "j_dep": {"b_dep"}, "l_ind": {"q_ind", "mixer"}, "l_dep": {"c_dep", "mixer"}}
ALONE = [["pi_ind"], ["b_dep"], ["q_ind"], ["c_dep"], ["mixer"]]
SHARED = [["pi_ind", "b_dep"], ["q_ind", "c_dep", "mixer"]]


def expected_step(
    networks: dict[str, list[np.ndarray]],
    squares: dict[str, list[np.ndarray]],
    gradients: dict[str, dict[str, list[np.ndarray]]],
    moves: dict[str, set[str]],
    lists: list[list[str]],
    optimiser: RMSprop,
) -> float:
    """One update by RMSprop, in place: a step for each loss in turn; returns the largest gradient norm."""
    largest = 0.0
    for loss, names in product(Losses._fields, lists):
        if not moves[loss] & set(names):
            continue
        gradient = {
            n: gradients[loss][n] if n in moves[loss] else [np.zeros_like(g) for g in gradients[loss][n]]
            for n in names
        }
        norm = np.sqrt(sum(np.sum(g**2) for leaves in gradient.values() for g in leaves))
        largest = max(largest, norm)
        for n in names:
            for at, g in enumerate(gradient[n]):
                g = g * min(1.0, optimiser.clip / norm)
                squares[n][at] = optimiser.decay * squares[n][at] + (1 - optimiser.decay) * g**2
                networks[n][at] = networks[n][at] - optimiser.lr * g / (
                    np.sqrt(squares[n][at]) + optimiser.eps
                )
    return largest


def leaves_of(networks: Networks) -> dict[str, list[np.ndarray]]:
    """The numbers of each network."""
    return {name: jax.tree.leaves(in_numpy(network)) for name, network in networks._asdict().items()}


@pytest.mark.parametrize(
    ("algorithm", "moves", "lists"),
    [
        pytest.param(tiny(), MOVES, ALONE, id="default"),
        pytest.param(tiny(shared_optimiser=True), MOVES, SHARED, id="shared"),
        pytest.param(tiny(mixer_grad="ind"), MOVES | {"l_dep": {"c_dep"}}, ALONE, id="mixer_grad=ind"),
        pytest.param(
            tiny(recurrent=True, dep_grad_through_trunk=True),
            MOVES | {"j_dep": {"b_dep", "pi_ind"}, "l_dep": {"c_dep", "mixer", "q_ind"}},
            ALONE,
            id="dep_grad_through_trunk",
        ),
    ],
)
def test_an_update_is_one_step_for_each_loss_in_turn(algorithm, moves, lists):
    optimiser = algorithm.optimiser
    assert isinstance(optimiser, RMSprop)
    learner = random_learner(algorithm, 3)
    expected = leaves_of(learner.networks)
    squares = {name: [np.zeros_like(leaf) for leaf in leaves] for name, leaves in expected.items()}
    norms = []
    for seed in range(3):
        batch, key = random_episodes(seed, 3), jax.random.key(seed)
        jacobian = gradients_of(replace(algorithm, shared_optimiser=False))(learner, batch, key)
        gradients = {
            loss: leaves_of(jax.tree.map(lambda leaf, row=row: leaf[row], getattr(jacobian, loss)))
            for row, loss in enumerate(Losses._fields)
        }
        norms.append(expected_step(expected, squares, gradients, moves, lists, optimiser))
        learner, _ = update_of(algorithm)(learner, batch, key, STEP)
        assert close(leaves_of(learner.networks), expected, tolerance=1e-4), seed
    assert max(norms) > optimiser.clip  # the clip was met


# Exploration

KEYS = 20_000
GROUPS = {"groups": 2, "dep_pool": "mean", "dep_mask": "all"}


@cache
def acts_of(algorithm: MACPF):
    """What is done at the start of an episode, by many keys."""

    def acts(learner: LearnerState, observation: Observation):
        memory = algorithm.init_memory(SPEC)

        def once(key):
            return {
                "explore": algorithm.explore(learner, memory, observation, key, STEP)[0],
                "ind": algorithm.execute(learner, memory, observation, key, sample=True)[0],
                "dep": algorithm.execute_dep(learner, memory, observation, key, sample=True)[0],
                "greedy": algorithm.execute_dep(learner, memory, observation, key)[0],
            }

        return jax.vmap(once)(jax.random.split(jax.random.key(0), KEYS))

    return quick_jit(acts)


def joint_probabilities(
    algorithm: MACPF, learner: LearnerState, observation: Observation, *, dependent: bool, epsilon: float
) -> np.ndarray:
    """How likely each joint action is at the start of an episode."""
    networks = in_numpy(learner.networks)
    seen = in_numpy(observation)
    probs = np.ones(len(JOINT))
    for which, actions in enumerate(JOINT):
        for i in range(N):
            x = agent_input(seen.obs, i, -1)
            h = advance(networks.pi_ind.body, x, np.zeros(algorithm.hidden))
            logits = linear(networks.pi_ind.head, h)
            told = told_of(algorithm, seen.visible, i, critic=False)
            b = correction(algorithm, networks.b_dep, h, told, actions) if dependent else 0
            p = policy(algorithm, logits + b, seen.avail[i], epsilon)
            anything = seen.avail[i] / seen.avail[i].sum()
            probs[which] *= ((1 - epsilon) * p + epsilon * anything)[actions[i]]
    return probs


def assert_drawn_from(actions: Any, probs: np.ndarray) -> None:
    """No joint action came up more or less often than is likely, impossible ones never."""
    which = np.ravel_multi_index(np.asarray(actions).T, [A] * N)
    counts = np.bincount(which, minlength=len(JOINT))
    deviation = np.sqrt(KEYS * probs * (1 - probs))
    np.testing.assert_allclose(probs.sum(), 1)
    assert np.all(np.abs(counts - KEYS * probs) <= 6 * deviation + 2 * (probs > 0))


def moment(seed: int) -> Observation:
    """A random moment."""
    return random_observation(np.random.default_rng(seed), ())


@pytest.mark.parametrize(
    ("algorithm", "epsilon"),
    [
        pytest.param(tiny(), 0.0, id="none"),
        pytest.param(tiny(epsilon_mode="behaviour"), EPSILON, id="behaviour"),
        pytest.param(tiny(epsilon_mode="everywhere"), EPSILON, id="everywhere"),
        pytest.param(tiny(**GROUPS), 0.0, id="groups"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_joint_actions_are_drawn_from_their_policies(algorithm, epsilon, seed):
    learner, observation = random_learner(algorithm, seed), moment(seed)
    acts = acts_of(algorithm)(learner, observation)

    def probs(*, dependent: bool, epsilon: float) -> np.ndarray:
        return joint_probabilities(algorithm, learner, observation, dependent=dependent, epsilon=epsilon)

    assert_drawn_from(acts["explore"], probs(dependent=True, epsilon=epsilon))
    assert_drawn_from(acts["dep"], probs(dependent=True, epsilon=0))
    assert_drawn_from(acts["ind"], probs(dependent=False, epsilon=0))


def test_behaviour_with_epsilon_1_is_uniform_over_available_actions():
    algorithm = tiny(epsilon_mode="behaviour", epsilon=Constant(1.0))
    for seed in range(3):
        observation = moment(seed)
        acts = acts_of(algorithm)(random_learner(algorithm, seed), observation)
        possible = np.asarray(observation.avail)[np.arange(N), np.asarray(JOINT)].all(axis=1)
        assert_drawn_from(acts["explore"], possible / possible.sum())


def decided(learner: LearnerState) -> LearnerState:
    """The learner with policies that are certain of what they do."""

    def parts(learner: LearnerState):
        networks = learner.networks
        b = networks.b_dep
        return (networks.pi_ind.head, b.w2_own, b.w2_told, b.b2)

    return eqx.tree_at(parts, learner, jax.tree.map(lambda leaf: 1e6 * leaf, parts(learner)))


def test_without_epsilon_nobody_deviates():
    none, behaviour = tiny(), tiny(epsilon_mode="behaviour")
    for seed in range(3):
        learner, observation = decided(random_learner(none, seed)), moment(seed)
        acts = acts_of(none)(learner, observation)
        np.testing.assert_array_equal(acts["explore"], acts["greedy"])
        np.testing.assert_array_equal(acts["dep"], acts["greedy"])
        forced = acts_of(behaviour)(learner, observation)
        np.testing.assert_array_equal(forced["dep"], acts["greedy"])
        assert np.any(np.asarray(forced["explore"]) != np.asarray(acts["greedy"]))


@pytest.mark.parametrize(
    "options",
    [{}, {"epsilon_mode": "behaviour"}, {"epsilon_mode": "everywhere"}, GROUPS],
    ids=["none", "behaviour", "everywhere", "groups"],
)
def test_both_samplers_choose_the_same(options):
    in_turn, at_once = tiny(**options), tiny(**options, sampler="at-once")
    for seed in range(3):
        learner, observation = random_learner(in_turn, seed), moment(seed)
        one, two = (acts_of(algorithm)(learner, observation) for algorithm in (in_turn, at_once))
        for name in one:
            np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def test_both_samplers_learn_the_same():
    algorithms = (tiny(), tiny(sampler="at-once"))
    for seed in range(3):
        learner, batch, key = (
            random_learner(algorithms[0], seed),
            random_episodes(seed, 3),
            jax.random.key(seed),
        )
        one, two = (update_of(algorithm)(learner, batch, key, STEP)[0] for algorithm in algorithms)
        assert close(one, two)


# All options together


def choices() -> dict[str, tuple[Any, ...]]:
    """Some values of every option, all of them where they can be counted."""
    hints = get_type_hints(MACPF)
    words = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
    flags = {name: (False, True) for name, hint in hints.items() if hint is bool}
    others = {"groups": (None, 2), "td_lambda": (0.0, 0.8), "optimiser": (RMSprop(), Adam())}
    return words | flags | others | {"mixer": (Hyper(8, 8, "linear"), Advantage(8))}


def legal(design: dict[str, Any]) -> bool:
    """Do these options go together?  What is committed needs its critic, a value target its mixer."""
    committed = design.get("extraction") == "committed"
    alone = committed and (design.get("dependent") is False or design.get("mixer_grad") == "ind")
    return not alone and not (design.get("targets") == "value" and isinstance(design.get("mixer"), Hyper))


def designs() -> list[dict[str, Any]]:
    """A few combinations in which every two values of any two options meet."""
    rng, values = np.random.default_rng(0), choices()
    missing = {
        frozenset({(a, x), (b, y)})
        for a, b in combinations(values, 2)
        for x, y in product(values[a], values[b])
        if legal({a: x, b: y})
    }
    chosen = []
    while missing:
        tries = [{name: v[rng.integers(len(v))] for name, v in values.items()} for _ in range(100)]
        chosen.append(max(filter(legal, tries), key=lambda design: len(missing & pairs(design))))
        missing -= pairs(chosen[-1])
    return chosen


def pairs(design: dict[str, Any]) -> set[frozenset[Any]]:
    """All pairs of values that meet in a combination."""
    return set(map(frozenset, combinations(design.items(), 2)))


def test_every_option_is_among_the_choices():
    assert choices().keys() >= {"epsilon_mode", "dep_pool", "sampler", "shared_optimiser", "recurrent"}
    assert len(choices()) >= 14


@pytest.mark.parametrize(
    "options",
    [
        {"targets": "value"},
        {"extraction": "committed", "dependent": False},
        {"extraction": "committed", "mixer_grad": "ind"},
    ],
)
def test_options_that_do_not_go_together_are_refused(options):
    assert not legal({"mixer": Hyper(8, 8, "linear")} | options)
    with pytest.raises(UserError):
        tiny(**options)


@pytest.mark.parametrize("options", designs())
def test_every_value_of_every_option_learns_and_acts_with_every_other(options):
    algorithm = tiny(**options)
    learner, observation, memory = random_learner(algorithm, 0), moment(0), algorithm.init_memory(SPEC)

    @quick_jit
    def learn_and_act(learner, batch, key):
        learner, metrics = algorithm.update(learner, batch, key, STEP)
        return learner, metrics, algorithm.explore(learner, memory, observation, key, STEP)

    before = learner.networks
    for seed in range(3):
        learner, metrics, acted = learn_and_act(learner, random_episodes(seed, 3), jax.random.key(seed))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((learner, metrics, acted)))
        assert np.asarray(observation.avail)[np.arange(N), np.asarray(acted[0])].all()
    assert not close(learner.networks, before)
