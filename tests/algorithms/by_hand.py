"""The baselines' networks, returns and steps once more, in numpy, by loops; and random learners for them."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product
from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from macpf.algorithms.fop import FOP
from macpf.algorithms.learning import LearnerState
from macpf.algorithms.qtran import QTRAN
from macpf.algorithms.value import ValueDecomposition
from macpf.networks.agents import Recurrent
from macpf.networks.mixers import AttentionWeights, HyperMixer, Sum
from macpf.optim import RMSprop
from macpf.schedules import Constant
from macpf.types import EnvSpec, Memory, Observation, Trajectory
from tests.helpers import SPEC, STEP, close, quick_jit, random_episodes, random_observation, same

Baseline = ValueDecomposition | QTRAN | FOP

N, A, T = SPEC.n_agents, SPEC.n_actions, SPEC.horizon
JOINT = np.asarray(list(product(range(A), repeat=N)))  # all joint actions
KEYS = 10_000
SMALL = {
    "recurrent": False,
    "hidden": 8,
    "optimiser": RMSprop(lr=1e-2, eps=1e-3),
    "gamma": 0.9,
    "epsilon": Constant(0.3),
    "target_period": 3,
}


# Random learners and moments


def random_like(tree: Any, seed: int, scale: float = 0.5) -> Any:
    """A tree of the same shapes with sizeable random numbers."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(scale * rng.standard_normal(x.shape), x.dtype), tree)


@cache
def _shapes(algorithm: Baseline, spec: EnvSpec) -> LearnerState:
    return jax.eval_shape(lambda key: algorithm.init(key, spec), jax.random.key(0))


def random_baseline(algorithm: Baseline, seed: int, spec: EnvSpec = SPEC) -> LearnerState:
    """A learner with sizeable parameters, whose targets are others than its networks."""
    shapes = _shapes(algorithm, spec)
    networks, targets = random_like((shapes.networks, shapes.targets), seed)
    rest = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (shapes.optimisers, shapes.updates))
    return LearnerState(networks, targets, *rest)


def moment(algorithm: Baseline, seed: int) -> tuple[Memory, Observation]:
    """A random moment in the middle of an episode."""
    rng = np.random.default_rng(seed)
    hidden = rng.uniform(-1, 1, algorithm.init_memory(SPEC).hidden.shape)
    previous = jnp.asarray(rng.integers(-1, A, N), jnp.int32)
    return Memory(jnp.asarray(hidden, jnp.float32), previous), random_observation(rng, ())


def in_numpy(tree: Any) -> Any:
    """The same tree with numpy arrays, numbers in double precision."""

    def convert(leaf):
        array = np.asarray(leaf)
        return array.astype(np.float64) if array.dtype == np.float32 else array

    return jax.tree.map(convert, tree)


# Networks in numpy


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    p = np.exp(x - np.max(x))
    return p / p.sum()


def linear(layer: Any, x):
    return layer.weight @ x + (0 if layer.bias is None else layer.bias)


def layers(net: Any, x):
    """Linear layers with a ReLU between each two."""
    *first, last = net.layers
    for layer in first:
        x = np.maximum(linear(layer, x), 0)
    return linear(last, x)


def heads(nets: Any) -> list[Any]:
    """The networks of one kind that are kept in one."""
    count = len(jax.tree.leaves(nets)[0])
    return [jax.tree.map(lambda leaf, k=k: leaf[k], nets) for k in range(count)]


def advance(body: Any, x, h):
    """The features of one agent at one moment, by those of the moment before."""
    if not isinstance(body, Recurrent):
        return np.maximum(layers(body.layers, x), 0)
    y = np.maximum(linear(body.layer, x), 0)
    cell: Any = body.cell
    ri, zi, ni = np.split(cell.weight_ih @ y + cell.bias, 3)
    rh, zh, nh = np.split(cell.weight_hh @ h, 3)
    reset, update = sigmoid(ri + rh), sigmoid(zi + zh)
    return (1 - update) * np.tanh(ni + reset * (nh + cell.bias_n)) + update * h


def agent_input(obs, i: int, previous: int):
    """Agent i's observation, previous action and index."""
    return np.concatenate([obs[i], np.arange(A) == previous, np.arange(N) == i])


def features(agent: Any, episode: Any, *, told: bool = True) -> np.ndarray:
    """What every agent's body makes of every row of an episode, told of its previous action or not."""
    h = np.zeros((T + 2, N, agent.head.in_features))
    for t, i in product(range(T + 1), range(N)):
        previous = episode.actions[t - 1, i] if t > 0 and told else -1
        h[t + 1, i] = advance(agent.body, agent_input(episode.observation.obs[t], i, previous), h[t, i])
    return h[1:]


def numbers(agent: Any, h: np.ndarray) -> np.ndarray:
    """The numbers an agent's head gives for features: one per action."""
    return np.stack([[linear(agent.head, own) for own in row] for row in h])


def taken(values, actions) -> np.ndarray:
    """The number of each agent's own action."""
    return np.array([own[action] for own, action in zip(values, actions, strict=True)])


# Mixers in numpy


def attention_logits(weights: Any, state) -> np.ndarray:
    """Head by head and agent by agent, the product of the state's selector with the agent's key."""
    n, u = weights.n_agents, weights.unit_dim
    units = [state[i * u : (i + 1) * u] for i in range(n)] if u else list(np.eye(n))
    selectors = [layers(selector, state) for selector in heads(weights.selectors)]
    return np.array(
        [
            [selector @ (unit @ key) for unit in units]
            for selector, key in zip(selectors, weights.keys, strict=True)
        ]
    )


def team_weights(weights: Any, state) -> tuple[np.ndarray, float]:
    """w_i(s), and what the state adds."""
    if isinstance(weights, AttentionWeights):
        logits = attention_logits(weights, state) / np.sqrt(weights.keys.shape[-1])
        return np.sum([softmax(row) for row in logits], axis=0) + 1e-10, float(layers(weights.v, state)[0])
    return np.abs(layers(weights.w, state)) + 1e-10, float(np.sum(layers(weights.v, state)))


def joint_weights(joint: Any, state, actions) -> np.ndarray:
    """lambda_i(s, a)."""
    done = np.concatenate([state, *[np.arange(joint.n_actions) == action for action in actions]])
    total = np.zeros(len(actions))
    for key, agents, acts in zip(heads(joint.key), heads(joint.agents), heads(joint.actions), strict=True):
        shares = sigmoid(layers(agents, state)) * sigmoid(layers(acts, done))
        total += (np.abs(layers(key, state)[0]) + 1e-10) * shares
    return total


def mixed(mixer: Any, q, v, actions, state) -> float:
    """The value of the team."""
    if isinstance(mixer, Sum):
        return float(np.sum(q))
    if isinstance(mixer, HyperMixer):
        w1, w2 = np.abs(layers(mixer.w1, state)), np.abs(layers(mixer.w2, state))
        hidden = linear(mixer.b1, state)
        for i, value in enumerate(q):
            hidden = hidden + value * w1[i * len(w2) : (i + 1) * len(w2)]
        if mixer.form == "elu":
            hidden = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0)))
        return float(hidden @ w2 + layers(mixer.v, state)[0])
    w, b = team_weights(mixer.weights, state)
    lam = joint_weights(mixer.joint, state, actions)
    return float(np.sum(w * v) + b + np.sum(w * lam * (np.asarray(q) - v)))


# Returns and losses


def returns(episode: Any, value: Sequence[float], gamma: float, lambda_: float) -> list[float]:
    """The lambda-returns of the real rows, from the last to the first."""
    length = int(episode.mask.sum())
    returns = [float(reward) for reward in episode.reward[:length]]
    for t in reversed(range(length)):
        if not episode.terminated[t]:
            later = returns[t + 1] if t + 1 < length else value[t + 1]
            returns[t] += gamma * ((1 - lambda_) * value[t + 1] + lambda_ * later)
    return returns


def losses(algorithm: Baseline, networks: Any, targets: Any, episode: Trajectory, key: Any) -> Any:
    """The losses of one episode, by name."""
    if isinstance(algorithm, FOP):
        return algorithm.losses(networks, targets, episode, key, STEP)[0]
    if isinstance(algorithm, QTRAN):
        return algorithm.losses(networks, targets, episode)
    return algorithm.losses(networks, targets, episode)[0]


@cache
def losses_of(algorithm: Baseline) -> Callable[..., Any]:
    """The compiled losses of a learner in one episode."""
    return quick_jit(
        lambda learner, episode, key: losses(algorithm, learner.networks, learner.targets, episode, key)
    )


def assert_losses(rows: Mapping[str, Any], episode: Trajectory, expected: Mapping[str, Any]) -> None:
    """The losses are the expected ones at every real row."""
    real = np.asarray(episode.mask[:-1])
    assert rows.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(np.asarray(rows[name])[real], values, rtol=2e-4, atol=2e-4, err_msg=name)


def ended(episode: Trajectory, *, terminated: bool) -> tuple[Trajectory, int]:
    """The same episode, terminated at its last row or cut off there; and that row."""
    last = int(episode.mask.sum()) - 1
    ends = jnp.arange(T + 1) == (last if terminated else -1)
    return eqx.tree_at(lambda e: e.terminated, episode, ends), last


# Gradients and updates


@cache
def gradients_of(algorithm: Baseline) -> Callable[..., Any]:
    """The gradient of each loss over a batch, by the name of the loss."""

    def gradients(learner: LearnerState, batch: Trajectory, key: Any) -> Any:
        keys = jax.random.split(key, batch.mask.shape[0])
        counts = batch.mask[:, :-1]

        def means(networks: Any) -> Any:
            rows = jax.vmap(lambda e, k: losses(algorithm, networks, learner.targets, e, k))(batch, keys)
            return {
                name: jnp.sum(jnp.where(counts, row, 0.0)) / jnp.sum(counts) for name, row in rows.items()
            }

        return jax.jacrev(means)(learner.networks)

    return quick_jit(gradients)


@cache
def update_of(algorithm: Baseline) -> Callable[..., Any]:
    """The compiled update."""
    return quick_jit(algorithm.update)


def size(tree: Any) -> float:
    """The largest absolute number of a tree."""
    return max((float(np.max(np.abs(leaf), initial=0.0)) for leaf in jax.tree.leaves(tree)), default=0.0)


def assert_moves(gradients: Mapping[str, Any], parts: Sequence[str], table: Mapping[str, set[str]]) -> None:
    """Every loss has a gradient for the parts the table gives it, and exactly none for the others."""
    assert gradients.keys() == table.keys()
    for (loss, gradient), part in product(gradients.items(), parts):
        assert (size(attrgetter(part)(gradient)) > 0) == (part in table[loss]), (loss, part)


def assert_one_step(algorithm: Baseline, lists: Sequence[Sequence[str]], seed: int) -> None:
    """An update is one step of RMSprop on the sum of all losses, each list of networks clipped as one."""
    optimiser = algorithm.optimiser
    assert isinstance(optimiser, RMSprop)
    learner, batch, key = random_baseline(algorithm, seed), random_episodes(seed, 3), jax.random.key(seed)
    per_loss = gradients_of(algorithm)(learner, batch, key).values()
    total = in_numpy(jax.tree.map(lambda *leaves: sum(leaves), *per_loss))._asdict()
    after, _ = update_of(algorithm)(learner, batch, key, STEP)
    norms = []
    for names in lists:
        norm = np.sqrt(sum(np.sum(g**2) for name in names for g in jax.tree.leaves(total[name])))
        norms.append(norm)
        for name in names:

            def step(old, g, norm=norm):
                g = g * min(1.0, optimiser.clip / norm)
                return old - optimiser.lr * g / (np.sqrt((1 - optimiser.decay) * g**2) + optimiser.eps)

            expected = jax.tree.map(step, in_numpy(getattr(learner.networks, name)), total[name])
            assert close(getattr(after.networks, name), expected, tolerance=1e-4), name
    assert max(norms) > optimiser.clip  # the clip was met


def assert_targets_lag(algorithm: Baseline, names: Sequence[str]) -> None:
    """The targets of these networks are copied at every third update and only then."""
    assert algorithm.target_period == 3
    learner, batch = random_baseline(algorithm, 7), random_episodes(7, 3)
    for count in range(1, 7):
        before = learner.targets
        learner, _ = update_of(algorithm)(learner, batch, jax.random.key(count), STEP)
        assert int(learner.updates) == count
        assert set(names) == {*learner.targets._fields}
        for name in names:
            old, target, new = (getattr(x, name) for x in (before, learner.targets, learner.networks))
            assert same(target, new) == (count % 3 == 0), name
            assert same(target, old) == (count % 3 != 0), name


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


def assert_only_real_rows_count(algorithm: Baseline, seed: int) -> None:
    """What lies behind the end changes nothing of an update; what lies before it does."""
    learner, batch, key = random_baseline(algorithm, seed), random_episodes(seed, 3), jax.random.key(seed)
    rows = behind_the_end(batch)
    one = update_of(algorithm)(learner, batch, key, STEP)
    assert same(one, update_of(algorithm)(learner, scrambled(batch, rows, seed + 1), key, STEP))
    other, _ = update_of(algorithm)(learner, scrambled(batch, ~rows, seed + 1), key, STEP)
    assert not same(one[0].networks, other.networks)


# Acting


@cache
def execute_of(algorithm: Baseline, sample: bool = False) -> Callable[..., Any]:
    """The compiled policy that remains after training."""
    return quick_jit(
        lambda learner, memory, observation, key: algorithm.execute(
            learner, memory, observation, key, sample=sample
        )
    )


@cache
def many_acts_of(algorithm: Baseline) -> Callable[..., Any]:
    """What is done in one moment by many keys: in training, and afterwards by sampling."""

    def acts(learner: LearnerState, memory: Memory, observation: Observation, step: Any) -> Any:
        def once(key):
            explored, _ = algorithm.explore(learner, memory, observation, key, step)
            return explored, algorithm.execute(learner, memory, observation, key, sample=True)[0]

        return jax.vmap(once)(jax.random.split(jax.random.key(0), KEYS))

    return quick_jit(acts)


def numbers_now(agent: Any, memory: Memory, observation: Observation) -> np.ndarray:
    """What an agent's network says of every agent's actions in one moment."""
    net, before, seen = in_numpy((agent, memory, observation))
    xs = [agent_input(seen.obs, i, before.previous[i]) for i in range(N)]
    return numbers(net, np.stack([[advance(net.body, xs[i], before.hidden[i]) for i in range(N)]]))[0]


def assert_drawn_from(actions: Any, probs: np.ndarray) -> None:
    """No joint action came up more or less often than agents' own probabilities [N, A] make it likely."""
    np.testing.assert_allclose(probs.sum(axis=-1), 1)
    joint = np.prod([taken(probs, actions) for actions in JOINT], axis=-1)
    counts = np.bincount(np.ravel_multi_index(np.asarray(actions).T, [A] * N), minlength=len(JOINT))
    deviation = np.sqrt(KEYS * joint * (1 - joint))
    assert np.all(np.abs(counts - KEYS * joint) <= 6 * deviation + 2 * (joint > 0))


def assert_decentralised(algorithm: Baseline, seed: int, sample: bool) -> None:
    """An agent's action and memory are the same whatever the others see and the state is."""
    learner, key = random_baseline(algorithm, seed), jax.random.key(seed)
    execute = execute_of(algorithm, sample)
    (memory, observation), (elsewhere, strange) = moment(algorithm, seed), moment(algorithm, seed + 1)
    actions, after = execute(learner, memory, observation, key)
    assert np.array_equal(after.previous, actions)
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
        crowd, later = execute(learner, remembered, mixed, key)
        assert crowd[i] == actions[i]
        assert np.array_equal(later.hidden[i], after.hidden[i])
