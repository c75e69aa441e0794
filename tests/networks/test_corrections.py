"""Corrections against their formula, and the two ways along a chain against each other."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from macpf.maths import greedy, log_softmax, pick
from macpf.networks.corrections import (
    Chain,
    choose_at_once,
    choose_in_turn,
    make_correction,
    pooled,
    predecessors,
)
from macpf.types import EnvSpec

N, A, H = 4, 3, 5
SPEC = EnvSpec(n_agents=N, n_actions=A, obs_dim=1, state_dim=1, horizon=1)
CORRECTION = make_correction(jax.random.key(0), SPEC, H)
FEATURES = jnp.asarray(np.random.default_rng(0).standard_normal((N, H)), jnp.float32)
VISIBLE = np.asarray([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 1], [1, 0, 1, 0]], bool)
DEPENDS = VISIBLE & predecessors(N)


def correction_chain(depends: np.ndarray) -> Chain:
    own = jax.vmap(CORRECTION.own)(FEATURES)
    return Chain(own, CORRECTION.table(), pooled(jnp.asarray(depends), "sum/N"))


def elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)


def written_out(actions: np.ndarray) -> np.ndarray:
    """W2 [h_i ; z_i] + b2 with z_i = (1/N) sum_j v_ij ELU(W1 [onehot(j) ; onehot(a_j)] + b1)."""
    c = CORRECTION
    w1 = np.concatenate([c.w1_id, c.w1_action]).T
    w2 = np.concatenate([c.w2_own, c.w2_told]).T
    rows = []
    for i in range(N):
        z = np.zeros(H)
        for j in range(N):
            told = np.concatenate([np.eye(N)[j], np.eye(A)[actions[j]]])
            z += DEPENDS[i, j] * elu(w1 @ told + np.asarray(c.b1)) / N
        rows.append(w2 @ np.concatenate([FEATURES[i], z]) + np.asarray(c.b2))
    return np.stack(rows)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_a_correction_is_its_formula(backend: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    chain = correction_chain(DEPENDS)
    for actions in np.random.default_rng(0).integers(A, size=(10, N)):
        assert_allclose(chain(jnp.asarray(actions)), written_out(actions), rtol=1e-4, atol=1e-5)


def test_an_agent_does_not_depend_on_itself_nor_on_later_ones():
    chain = correction_chain(predecessors(N))
    actions = np.asarray([0, 1, 2, 0])
    for j in range(N):
        other = actions.copy()
        other[j] = (other[j] + 1) % A
        before, after = (np.asarray(chain(jnp.asarray(a))) for a in (actions, other))
        assert_array_equal(before[: j + 1], after[: j + 1])
        assert (before[j + 1 :] != after[j + 1 :]).all()


def test_pools_by_hand():
    depends = jnp.asarray([[0, 0, 0], [1, 0, 0], [1, 1, 0]], bool)
    third = 1 / 3
    assert_allclose(pooled(depends, "sum/N"), [[0, 0, 0], [third, 0, 0], [third, third, 0]])
    assert_allclose(pooled(depends, "mean"), [[0, 0, 0], [1, 0, 0], [0.5, 0.5, 0]])
    assert_allclose(pooled(depends, "sum"), [[0, 0, 0], [1, 0, 0], [1, 1, 0]])


def test_layers_start_within_their_bounds():
    big = make_correction(jax.random.key(0), SPEC, 200)
    for layer, inputs in (
        ((big.w1_id, big.w1_action, big.b1), N + A),
        ((big.w2_own, big.w2_told, big.b2), 2 * 200),
    ):
        sizes = np.abs(np.concatenate([np.ravel(part) for part in layer]))
        assert 0.98 * inputs**-0.5 < sizes.max() <= inputs**-0.5


def test_predecessors_by_hand():
    assert_array_equal(predecessors(3), [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    assert_array_equal(predecessors(3, 1), np.zeros((3, 3)))
    assert_array_equal(predecessors(4, 2), [[0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]])


@pytest.mark.parametrize(("n", "groups"), [(n, g) for n in range(1, 8) for g in range(1, n + 1)])
def test_there_are_as_many_groups_as_asked_for(n, groups):
    before = predecessors(n, groups)
    assert len(np.unique(before, axis=0)) == groups  # those of a group see the same, and not each other
    assert (before <= np.tri(n, k=-1, dtype=bool)).all()
    together = ~(before | before.T)
    sizes = together.sum(axis=1)
    assert sizes.max() - sizes.min() <= 1  # groups are as equal as can be


def decide_sampling(logits, given):
    avail, luck = given
    return pick(log_softmax(logits, avail), luck)


def decide_greedily(logits, given):
    return greedy(logits, given[0])


@cache
def choosers(n: int, a: int, groups: int | None, sampling: bool):
    """Both ways along the chain over a batch: actions of either, rounds, and the answers to the actions."""
    decide = decide_sampling if sampling else decide_greedily

    def both(own, table, weight, *given):
        chain = Chain(own, table, weight)
        in_turn = choose_in_turn(chain, decide, given, groups)
        at_once, rounds = choose_at_once(chain, decide, given)
        return in_turn, at_once, rounds, decide(chain(in_turn), given)

    return jax.jit(jax.vmap(both), compiler_options={"xla_backend_optimization_level": 0})


def random_chains(seed: int, n: int, a: int, groups: int | None, batch: int = 32):
    """Own logits, tables, weights, available actions and luck of many moments; the weights are large."""
    rng = np.random.default_rng(seed)
    depends = predecessors(n, groups) & (rng.random((batch, n, n)) < 0.8)
    avail = rng.random((batch, n, a)) < 0.7
    np.put_along_axis(avail, rng.integers(a, size=(batch, n, 1)), True, axis=-1)
    parts = (
        rng.standard_normal((batch, n, a)),
        3 * rng.standard_normal((batch, n, a, a)),
        depends * rng.random((batch, n, n)),
        rng.random((batch, n)),
    )
    own, table, weight, luck = (jnp.asarray(part, jnp.float32) for part in parts)
    return own, table, weight, jnp.asarray(avail), luck


@st.composite
def sizes(draw) -> tuple[int, int, int | None]:
    n = draw(st.integers(1, 7))
    return n, draw(st.integers(1, 4)), draw(st.one_of(st.none(), st.integers(1, n)))


@settings(max_examples=15)  # each compiles anew, and tries many chains
@given(st.integers(0, 2**32 - 1), sizes(), st.booleans())
def test_both_ways_along_a_chain_end_alike(seed, size, sampling):
    n, a, groups = size
    own, table, weight, avail, luck = random_chains(seed, n, a, groups)
    in_turn, at_once, rounds, answers = choosers(n, a, groups, sampling)(own, table, weight, avail, luck)
    assert_array_equal(in_turn, at_once)
    assert np.take_along_axis(np.asarray(avail), np.asarray(in_turn)[..., None], axis=-1).all()
    assert (rounds <= n).all()
    assert_array_equal(answers, in_turn)  # nobody would choose otherwise


def test_both_ways_along_a_chain_depend_on_predecessors():
    own, table, weight, avail, luck = random_chains(0, 5, 4, None)
    with_, without = (choosers(5, 4, None, True)(own, table, w, avail, luck)[0] for w in (weight, 0 * weight))
    assert_array_equal(with_[:, 0], without[:, 0])
    assert not np.array_equal(with_, without)


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 5])
def test_every_number_of_groups_ends_alike(groups):
    chains = random_chains(1, 5, 3, groups)
    in_turn, at_once, rounds, _ = choosers(5, 3, groups, True)(*chains)
    assert_array_equal(in_turn, at_once)
    assert (rounds <= groups + 1).all()


def test_without_dependence_the_second_round_is_the_last():
    own, table, weight, avail, luck = random_chains(2, 6, 3, None)
    _, _, rounds, _ = choosers(6, 3, None, True)(own, table, 0 * weight, avail, luck)
    assert (rounds == 2).all()


def test_a_longest_chain_takes_as_many_rounds_as_agents():
    n = 5
    own = jnp.asarray([[0.0, 1.0]] + [[1.0, 0.0]] * (n - 1))  # the first does 1, the others 0 unless told
    table = jnp.tile(jnp.asarray([[0.0, 0.0], [0.0, 9.0]]), (n, 1, 1))  # doing 1 asks the next for 1
    chain = Chain(own, table, jnp.eye(n, k=-1))
    given = (jnp.ones((n, 2), bool), jnp.zeros(n))
    actions, rounds = choose_at_once(chain, decide_greedily, given)
    assert_array_equal(actions, np.ones(n))
    assert rounds == n
    assert_array_equal(choose_in_turn(chain, decide_greedily, given), np.ones(n))


# Deep corrections

DEEP = make_correction(jax.random.key(1), SPEC, H, deep=True)
BASE = jnp.asarray(np.random.default_rng(1).standard_normal((N, A)), jnp.float32)


def deep_chain(depends: np.ndarray) -> Chain:
    return DEEP.chain(BASE, jax.vmap(DEEP.own)(FEATURES), pooled(jnp.asarray(depends), "sum/N"))


def deep_written_out(actions: np.ndarray) -> np.ndarray:
    """base + W3 relu(W2 [h_i ; z_i] + b2) with z_i as in a shallow one."""
    c = DEEP
    assert c.w3 is not None
    w1 = np.concatenate([c.w1_id, c.w1_action]).T
    w2 = np.concatenate([c.w2_own, c.w2_told]).T
    rows = []
    for i in range(N):
        z = np.zeros(H)
        for j in range(N):
            told = np.concatenate([np.eye(N)[j], np.eye(A)[actions[j]]])
            z += DEPENDS[i, j] * elu(w1 @ told + np.asarray(c.b1)) / N
        units = np.maximum(w2 @ np.concatenate([FEATURES[i], z]) + np.asarray(c.b2), 0)
        rows.append(np.asarray(BASE[i]) + np.asarray(c.w3).T @ units)
    return np.stack(rows)


def test_a_deep_correction_is_its_formula():
    chain = deep_chain(DEPENDS)
    for actions in np.random.default_rng(0).integers(A, size=(10, N)):
        assert_allclose(chain(jnp.asarray(actions)), deep_written_out(actions), rtol=1e-4, atol=1e-5)


def test_a_shallow_correction_is_added_to_its_base():
    own, weight = jax.vmap(CORRECTION.own)(FEATURES), pooled(jnp.asarray(DEPENDS), "sum/N")
    chain = CORRECTION.chain(BASE, own, weight)
    for actions in np.random.default_rng(0).integers(A, size=(10, N)):
        expected = np.asarray(BASE) + written_out(actions)
        assert_allclose(chain(jnp.asarray(actions)), expected, rtol=1e-4, atol=1e-5)


def whole_numbers(seed: int, deep: bool) -> Chain:
    """A chain of small whole numbers, whose sums are exact; every predecessor counts alike."""
    rng = np.random.default_rng(seed)
    units = H if deep else A
    own, table, base, read = (
        jnp.asarray(rng.integers(-3, 4, shape), jnp.float32)
        for shape in ((N, units), (N, A, units), (N, A), (units, A))
    )
    weight = jnp.asarray(predecessors(N), jnp.float32)
    return Chain(own, table, weight, base, read) if deep else Chain(own, table, weight)


@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
def test_only_what_a_deep_chain_says_can_hang_on_two_predecessors_together(deep):
    """The third's numbers under two actions of the first differ alike whatever the second does, or not."""
    interacts = []
    for seed in range(5):
        chain = whole_numbers(seed, deep)
        table = np.asarray(
            [[chain(jnp.asarray([i, j, 0, 0]))[2] for j in range(A)] for i in range(A)]
        )  # by the first's action and the second's
        effect = table - table[:1]
        interacts.append(bool(np.any(effect != effect[:, :1])))
        assert np.any(effect != 0)
        assert np.any(table != table[:, :1])
    assert interacts == [deep] * 5


@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
def test_along_an_episode_every_step_is_its_own_chain(deep):
    rng = np.random.default_rng(2)
    steps = 6
    own, weight, base, table, read = (
        jnp.asarray(rng.standard_normal(shape), jnp.float32)
        for shape in ((steps, N, H), (steps, N, N), (steps, N, A), (N, A, H), (H, A))
    )
    actions = jnp.asarray(rng.integers(A, size=(steps, N)))
    if not deep:
        own, table = own[..., :A], table[..., :A]
    rows = Chain(own, table, weight, base, read) if deep else Chain(own, table, weight)
    found = rows.along(actions)
    for t in range(steps):
        one = Chain(own[t], table, weight[t], base[t], read) if deep else Chain(own[t], table, weight[t])
        assert_allclose(found[t], one(actions[t]), rtol=1e-5, atol=1e-5)


def test_layers_of_a_deep_correction_start_within_their_bounds():
    big = make_correction(jax.random.key(0), SPEC, 200, deep=True)
    assert big.w3 is not None
    assert big.w3.shape == (200, A)
    assert big.w2_own.shape == big.w2_told.shape == (200, 200)
    for layer, inputs in (((big.w2_own, big.w2_told, big.b2), 2 * 200), ((big.w3,), 200)):
        sizes = np.abs(np.concatenate([np.ravel(part) for part in layer]))
        assert 0.98 * inputs**-0.5 < sizes.max() <= inputs**-0.5


@pytest.mark.parametrize("sampling", [False, True], ids=["greedy", "sampled"])
@pytest.mark.parametrize("groups", [None, 1, 2, 3])
def test_both_ways_along_a_deep_chain_end_alike(groups, sampling):
    decide = decide_sampling if sampling else decide_greedily
    n, a, units = 5, 3, 8
    base, _, weight, avail, luck = random_chains(3, n, a, groups)
    rng = np.random.default_rng(3)
    own, table, read = (
        jnp.asarray(rng.standard_normal(shape), jnp.float32)
        for shape in ((len(base), n, units), (n, a, units), (units, a))
    )

    def both(own, weight, base, *given):
        chain = Chain(own, 3 * table, weight, base, 2 * read)
        in_turn = choose_in_turn(chain, decide, given, groups)
        return in_turn, *choose_at_once(chain, decide, given), decide(chain(in_turn), given)

    run = jax.jit(jax.vmap(both), compiler_options={"xla_backend_optimization_level": 0})
    in_turn, at_once, rounds, answers = run(own, weight, base, avail, luck)
    assert_array_equal(in_turn, at_once)
    assert_array_equal(answers, in_turn)
    assert (rounds <= (groups or n) + 1).all()
    alone = run(own, 0 * weight, base, avail, luck)[0]
    assert np.array_equal(in_turn, alone) == (groups == 1)
