"""What makes a mixer a mixer: more for an agent is never less for the team."""

from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose

from macpf.errors import UserError
from macpf.networks.mixers import Additive, Attention, Duplex, Hyper, HyperMixer, Mixer, Mixing
from macpf.types import EnvSpec
from tests.algorithms.by_hand import (
    attention_logits,
    in_numpy,
    joint_weights,
    mixed,
    random_like,
    size,
    softmax,
    team_weights,
)
from tests.helpers import few, quick_jit, same, seeds

SPEC = EnvSpec(n_agents=3, n_actions=2, obs_dim=1, state_dim=4, horizon=1)
RNG = np.random.default_rng(0)
STATES = jnp.asarray(3 * RNG.standard_normal((50, 4)), jnp.float32)
QS = jnp.asarray(3 * RNG.standard_normal((50, 3)), jnp.float32)


@cache
def mixer(form: Literal["linear", "elu"]) -> HyperMixer:
    return Hyper(embed=8, hidden=16, form=form).make(jax.random.key(0), SPEC)


def value(mix: HyperMixer, q: jax.Array, state: jax.Array) -> jax.Array:
    """The mixer has no use for the best values and the actions."""
    return mix(q, q, jnp.zeros(q.shape, int), state)


def slopes(mix: HyperMixer, qs: jax.Array, states: jax.Array) -> jax.Array:
    return jax.jit(jax.vmap(jax.grad(partial(value, mix))))(qs, states)


def test_the_linear_mixer_is_a_weighted_sum():
    mix = mixer("linear")
    k = slopes(mix, QS, STATES)
    values = jax.jit(jax.vmap(partial(value, mix)))
    beta = values(jnp.zeros_like(QS), STATES)
    assert_allclose(k, slopes(mix, -2 * QS, STATES), rtol=1e-5, atol=1e-6)  # the same wherever taken
    assert_allclose(values(QS, STATES), jnp.sum(k * QS, axis=-1) + beta, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["linear", "elu"])
def test_its_slopes_are_not_negative(form):
    k = slopes(mixer(form), QS, STATES)
    assert jnp.min(k) >= 0
    assert jnp.max(k) > 0


@pytest.mark.parametrize("form", ["linear", "elu"])
def test_more_for_an_agent_is_not_less_for_the_team(form):
    mix = jax.jit(jax.vmap(partial(value, mixer(form))))
    more = jnp.asarray(RNG.exponential(size=QS.shape), jnp.float32)
    assert jnp.all(mix(QS + more, STATES) >= mix(QS, STATES))


def test_the_elu_mixer_is_no_weighted_sum():
    mix = mixer("elu")
    assert not np.allclose(slopes(mix, QS, STATES), slopes(mix, -2 * QS, STATES), rtol=1e-2)


def test_weights_and_bias_are_functions_of_the_state():
    mix = mixer("linear")
    here, there = STATES[:1], STATES[1:2]
    assert not np.allclose(slopes(mix, QS[:1], here), slopes(mix, QS[:1], there), rtol=1e-2)
    assert not np.allclose(
        value(mix, jnp.zeros(3), STATES[0]), value(mix, jnp.zeros(3), STATES[1]), rtol=1e-2
    )


def test_the_linear_mixer_written_out():
    mix, q, state = mixer("linear"), QS[0], STATES[0]

    def layers(net, x):
        first, second = net.layers
        hidden = np.maximum(np.asarray(first.weight) @ x + np.asarray(first.bias), 0)
        return np.asarray(second.weight) @ hidden + np.asarray(second.bias)

    s = np.asarray(state)
    w1 = np.abs(layers(mix.w1, s)).reshape(3, 8)
    hidden = np.asarray(q) @ w1 + np.asarray(mix.b1.weight) @ s + np.asarray(mix.b1.bias)
    expected = hidden @ np.abs(layers(mix.w2, s)) + layers(mix.v, s)[0]
    assert_allclose(value(mix, q, state), expected, rtol=1e-4)


def test_its_leaves_are_arrays():
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(mixer("elu")))


# All mixers, with random parameters

UNITS = replace(SPEC, state_dim=8, unit_dim=2)  # the state is two features of each agent, and two more
ALL: dict[str, tuple[Mixing, EnvSpec]] = {
    "sum": (Additive(), SPEC),
    "linear": (Hyper(embed=4, hidden=8, form="linear"), SPEC),
    "elu": (Hyper(embed=4, hidden=8), SPEC),
    "duplex": (Duplex(heads=2, hidden=8), SPEC),
    "deep duplex": (Duplex(heads=3, layers=3, hidden=8), SPEC),
    "attention": (Attention(heads=2, embed=4, hidden=8, penalty=0.5), SPEC),
    "attention to units": (Attention(heads=3, embed=4, hidden=8, penalty=0.5), UNITS),
}


def those(*names: str) -> Any:
    """Parametrises with the mixers of these names, and their tasks."""
    return pytest.mark.parametrize(("making", "spec"), [pytest.param(*ALL[n], id=n) for n in names])


weighted = those("duplex", "deep duplex", "attention", "attention to units")
attentive = those("attention", "attention to units")


@cache
def shapes(making: Mixing, spec: EnvSpec) -> Mixer:
    return jax.eval_shape(lambda key: making.make(key, spec), jax.random.key(0))


def drawn(making: Mixing, spec: EnvSpec, seed: int) -> tuple[Any, tuple[jax.Array, ...]]:
    """A mixer with random parameters, and values, best values, actions and a state for it."""
    rng = np.random.default_rng(seed)
    q, state = 2 * rng.standard_normal(spec.n_agents), 2 * rng.standard_normal(spec.state_dim)
    v = q + rng.exponential(size=q.shape)
    actions = jnp.asarray(rng.integers(spec.n_actions, size=q.shape), jnp.int32)
    q, v, state = (jnp.asarray(x, jnp.float32) for x in (q, v, state))
    return random_like(shapes(making, spec), seed), (q, v, actions, state)


@quick_jit
def call(mix: Mixer, q, v, actions, state):
    return mix(q, v, actions, state)


@quick_jit
def weights(mix: Any, actions, state):
    """w_i, what the state adds, and lambda_i."""
    return *mix.weights(state), mix.joint(state, actions)


@quick_jit
def penalty(mix: Mixer, state):
    return mix.penalty(state)


@quick_jit
def gradients(mix: Any, q, v, actions, state):
    """What the team's value gains by the mixer's parameters, by the values, by the best values."""
    return jax.grad(lambda mix, q, v: mix(q, v, actions, state), argnums=(0, 1, 2))(mix, q, v)


@those(*ALL)
@few(8)
@given(seed=seeds)
def test_the_teams_value_written_out(making, spec, seed):
    mix, inputs = drawn(making, spec, seed)
    assert_allclose(call(mix, *inputs), mixed(*in_numpy((mix, *inputs))), rtol=1e-4, atol=1e-4)


@few(8)
@given(seed=seeds)
def test_the_sum_is_additive(seed):
    mix, (q, v, actions, state) = drawn(Additive(), SPEC, seed)
    other, (p, *elsewhere) = drawn(Additive(), SPEC, seed + 1)
    assert_allclose(
        call(mix, q + p, v, actions, state),
        call(mix, q, v, actions, state) + call(other, p, *elsewhere),
        rtol=1e-5,
        atol=1e-5,
    )


@those(*ALL)
def test_the_leaves_of_every_mixer_are_arrays(making, spec):
    made = eqx.filter_eval_shape(lambda key: making.make(key, spec), jax.random.key(0))
    assert isinstance(made, Mixer)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(made))
    assert bool(jax.tree.leaves(made)) == (making != Additive())


@those("sum", "linear", "elu", "duplex")
@few(3)
@given(seed=seeds)
def test_only_attention_has_a_penalty(making, spec, seed):
    mix, (*_, state) = drawn(making, spec, seed)
    assert penalty(mix, state) == 0


# Weighted advantages


@weighted
@few(10)
@given(seed=seeds)
def test_the_weights_of_agents_and_of_their_advantages_are_positive(making, spec, seed):
    mix, (_, _, actions, state) = drawn(making, spec, seed)
    w, b, lam = weights(mix, actions, state)
    assert min(jnp.min(w), jnp.min(lam)) > 0
    by_hand, a, s = in_numpy((mix, actions, state))
    expected_w, expected_b = team_weights(by_hand.weights, s)
    assert_allclose(w, expected_w, rtol=1e-4)
    assert_allclose(b, expected_b, rtol=1e-4, atol=1e-5)
    assert_allclose(lam, joint_weights(by_hand.joint, s, a), rtol=1e-4)


@weighted
def test_they_are_positive_even_where_the_networks_say_nothing(making, spec):
    mix, (_, _, actions, state) = drawn(making, spec, 0)
    w, _, lam = weights(jax.tree.map(jnp.zeros_like, mix), actions, state)
    assert min(jnp.min(w), jnp.min(lam)) > 0


@weighted
@few(8)
@given(seed=seeds)
def test_the_teams_value_rises_with_an_agents_by_its_weight_exactly(making, spec, seed):
    mix, (q, v, actions, state) = drawn(making, spec, seed)
    _, by_q, by_v = gradients(mix, q, v, actions, state)
    w, _, _ = weights(mix, actions, state)
    np.testing.assert_array_equal(by_q, w)
    np.testing.assert_array_equal(by_v, jnp.zeros_like(v))


@weighted
@few(8)
@given(seed=seeds)
def test_advantages_move_the_joint_weights_alone(making, spec, seed):
    mix, (q, v, actions, state) = drawn(making, spec, seed)
    by_mix, _, _ = gradients(mix, q, v, actions, state)
    without, _, _ = gradients(mix, q, q, actions, state)
    assert same(by_mix.weights, without.weights)
    assert size(by_mix.weights) > 0
    assert size(without.joint) == 0
    w, _, _ = weights(mix, actions, state)
    expected = joint_gradient(mix.joint, w * (q - v), actions, state)
    for one, other in zip(jax.tree.leaves(by_mix.joint), jax.tree.leaves(expected), strict=True):
        assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        assert size(one) > 0


@quick_jit
def joint_gradient(joint: Any, advantages, actions, state):
    """The gradient of the advantages' weighted sum."""
    return jax.grad(lambda joint: jnp.sum(advantages * joint(state, actions)))(joint)


@pytest.mark.parametrize(("n", "a"), [(2, 5), (3, 3), (4, 2)])
@pytest.mark.parametrize("layers", [1, 3])
@few(8)
@given(seed=seeds)
def test_the_best_joint_action_of_a_duplex_mixer_is_every_agents_own_best(n, a, layers, seed):
    spec = replace(SPEC, n_agents=n, n_actions=a)
    mix, (*_, state) = drawn(Duplex(heads=2, layers=layers, hidden=8), spec, seed)
    table = np.random.default_rng(seed).permutation(n * a).reshape(n, a).astype(np.float32)
    joint = np.asarray(list(product(range(a), repeat=n)), np.int32)
    qs = table[np.arange(n), joint]
    values = np.asarray(over_joint_actions(mix, qs, table.max(axis=-1), joint, state))
    np.testing.assert_array_equal(joint[values.argmax()], table.argmax(axis=-1))
    assert np.sum(values == values.max()) == 1


over_joint_actions = quick_jit(
    jax.vmap(lambda mix, q, v, actions, state: mix(q, v, actions, state), in_axes=(None, 0, None, 0, None))
)


@few(8)
@given(seed=seeds)
def test_the_joint_weights_depend_on_what_everyone_does(seed):
    mix, (_, _, actions, state) = drawn(*ALL["duplex"], seed)
    _, _, lam = weights(mix, actions, state)
    for i in range(SPEC.n_agents):
        _, _, other = weights(mix, actions.at[i].set(1 - actions[i]), state)
        assert np.all(np.asarray(lam) != np.asarray(other))


# Attention


@attentive
@few(8)
@given(seed=seeds)
def test_every_head_shares_out_one_over_the_agents(making, spec, seed):
    mix, (_, _, actions, state) = drawn(making, spec, seed)
    w, _, _ = weights(mix, actions, state)
    assert_allclose(jnp.sum(w), making.heads, rtol=1e-6)
    scaled = attention_logits(in_numpy(mix.weights), in_numpy(state)) / np.sqrt(making.embed)
    for k in range(making.heads):
        head = eqx.tree_at(
            lambda m: (m.weights.selectors, m.weights.keys),
            mix,
            jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], (mix.weights.selectors, mix.weights.keys)),
        )
        alone, _, _ = weights(head, actions, state)
        assert_allclose(jnp.sum(alone), 1, rtol=1e-6)
        assert_allclose(alone, softmax(scaled[k]), rtol=1e-4, atol=1e-6)


@attentive
@few(8)
@given(seed=seeds)
def test_the_penalty_is_the_mean_square_of_each_heads_logits(making, spec, seed):
    mix, (*_, state) = drawn(making, spec, seed)
    logits = attention_logits(in_numpy(mix.weights), in_numpy(state))
    expected = making.penalty * sum(np.mean(head**2) for head in logits)
    assert_allclose(penalty(mix, state), expected, rtol=1e-4)
    assert expected > 0


def test_the_published_penalty_is_the_default():
    assert Attention().penalty == 0.001


def unselective(mix: Any) -> Any:
    """The mixer with selectors that do not look at the state: what is left are the agents' features."""
    return eqx.tree_at(lambda m: m.weights.selectors.layers[0].weight, mix, replace_fn=jnp.zeros_like)


@few(8)
@given(seed=seeds)
def test_attention_is_paid_to_each_agents_features_at_the_beginning_of_the_state(seed):
    mix, (_, _, actions, state) = drawn(*ALL["attention to units"], seed)
    mix = unselective(mix)
    w, _, _ = weights(mix, actions, state)
    rest = weights(mix, actions, state.at[6:].add(1.0))[0]
    order = jnp.asarray([2, 0, 1])
    moved = jnp.concatenate([state[:6].reshape(3, 2)[order].ravel(), state[6:]])
    np.testing.assert_array_equal(rest, w)
    assert_allclose(weights(mix, actions, moved)[0], w[order], rtol=1e-5)
    assert np.ptp(np.asarray(w)) > 0


@few(8)
@given(seed=seeds)
def test_without_features_agents_are_told_apart_by_their_index(seed):
    mix, (_, _, actions, state) = drawn(*ALL["attention"], seed)
    here, there = (weights(unselective(mix), actions, s)[0] for s in (state, -state))
    np.testing.assert_array_equal(here, there)
    assert np.ptp(np.asarray(here)) > 0
    assert mix.weights.keys.shape == (2, SPEC.n_agents, 4)


@pytest.mark.parametrize(
    ("making", "options"),
    [
        *[(Hyper, {name: 0}) for name in ("embed", "hidden")],
        *[(Duplex, {name: 0}) for name in ("heads", "layers", "hidden")],
        *[(Attention, {name: 0}) for name in ("heads", "embed", "hidden")],
        (Attention, {"penalty": -0.001}),
    ],
)
def test_impossible_sizes_are_refused(making, options):
    with pytest.raises(UserError):
        making(**options)
