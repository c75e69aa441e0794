"""Which joint policies come near the soft optimum exp(r / alpha) / Z of small one-shot games."""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from macpf.algorithms import ALGORITHMS
from macpf.envs.matrix import MatrixGame
from macpf.experiments.experiment import Experiment
from macpf.experiments.presets import with_values
from macpf.networks.mixers import Advantage, Mixing
from macpf.schedules import Constant
from macpf.training import train
from macpf.types import EnvSpec, PRNGKey, TimeStep
from tests.helpers import quick_jit

ALPHA = 0.5
GAMES, ACTIONS = 4, 3
JOINT = jnp.asarray(list(product(range(ACTIONS), repeat=2)))
RNG = np.random.default_rng(0)
ANY = RNG.uniform(-1, 1, (GAMES, ACTIONS, ACTIONS)).astype(np.float32)
SUMS = (RNG.uniform(-1, 1, (GAMES, ACTIONS, 1)) + RNG.uniform(-1, 1, (GAMES, 1, ACTIONS))).astype(np.float32)
FORM = MatrixGame(((0.0,) * ACTIONS,) * ACTIONS)


@dataclass(frozen=True)
class Paying:
    """The matrix game of a table that may be traced, so that all games are one compiled program."""

    table: Any

    @property
    def spec(self) -> EnvSpec:
        return FORM.spec

    def reset(self, key: PRNGKey) -> tuple[tuple[()], TimeStep]:
        return FORM.reset(key)

    def step(self, state: tuple[()], actions: Int[Array, " N"], key: PRNGKey) -> tuple[tuple[()], TimeStep]:
        state, arrived = FORM.step(state, actions, key)
        return state, eqx.tree_at(lambda a: a.reward, arrived, self.table[tuple(actions)])


@cache
def learned(name: str, policy: str, additive: bool, mixer: Mixing | None = None) -> np.ndarray:
    """The joint policy learned in every game, with a constant temperature: [games, A, A]."""
    made: Any = ALGORITHMS[name].make()
    made = made if mixer is None else replace(made, mixer=mixer)
    algorithm: Any = with_values(
        made,
        recurrent=False,
        hidden=32,
        alpha=Constant(ALPHA),
        epsilon=Constant(0.3),
        epsilon_mode="behaviour",
        critic_speed=3.0,
        optimiser=replace(made.optimiser, lr=2e-3),
    )
    sizes: dict[str, Any] = {"steps": 1500, "eval_every": 1500, "eval_episodes": 1, "replay": 1000}
    sizes |= {"batch": 16, "burn_in": 16}

    def run(table: Array, key: PRNGKey) -> Array:
        experiment = Experiment(name, "game", algorithm, Paying(table), **sizes)
        state, _ = train(experiment, key)
        _, first = FORM.reset(key)
        memory = algorithm.init_memory(FORM.spec)
        return jax.vmap(lambda a: algorithm.log_prob(state.learner, memory, first.observation, a)[policy])(
            JOINT
        )

    tables = SUMS if additive else ANY
    keys = jax.vmap(jax.random.key)(jnp.arange(GAMES))
    found = quick_jit(jax.vmap(run))(jnp.asarray(tables), keys)
    return np.exp(np.asarray(found, np.float64)).reshape(tables.shape)


def soft_optimum(tables: np.ndarray) -> np.ndarray:
    """exp(r / alpha) / Z of every game, by enumeration."""
    p = np.exp(tables.astype(np.float64) / ALPHA)
    return p / p.sum((1, 2), keepdims=True)


def away(policies: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """The distance in total variation from the soft optimum, game by game."""
    return 0.5 * np.abs(policies - soft_optimum(tables)).sum((1, 2))


def likeliest(policies: np.ndarray) -> list[int]:
    """The likeliest joint action of every game."""
    return policies.reshape(GAMES, -1).argmax(axis=1).tolist()


UNIFORM = np.full((GAMES, ACTIONS, ACTIONS), 1 / ACTIONS**2)


def test_the_optimum_is_far_from_knowing_nothing():
    assert away(UNIFORM, ANY).min() > 0.3
    assert away(UNIFORM, SUMS).min() > 0.25
    assert away(soft_optimum(ANY), ANY).max() == 0


def test_centralised_control_learns_the_soft_optimum():
    """Measured: 0.001 to 0.015 after 1500 episodes, 0.000 to 0.004 after 3000 at half the learning rate."""
    policies = learned("central", "ind", additive=False)
    assert away(policies, ANY).max() <= 0.05
    assert likeliest(policies) == likeliest(ANY)


def test_the_dependent_policy_of_macpf_plus_learns_the_soft_optimum():
    """Measured: 0.000 to 0.008 after 1500 episodes."""
    policies = learned("macpf-plus", "dep", additive=False)
    assert away(policies, ANY).max() <= 0.05
    assert likeliest(policies) == likeliest(ANY)


def test_macpf_plus_is_nearer_to_the_soft_optimum_than_macpf():
    """Measured for MACPF's pi_dep: 0.07 to 0.20, 0.13 on average; 0.16 of six games after 3000 episodes.

    One reason may be that its mixer's weights scale the agents' values, and with them the temperature.
    """
    plus, plain = (away(learned(name, "dep", additive=False), ANY).mean() for name in ("macpf-plus", "macpf"))
    assert plus < plain


def test_fop_finds_the_best_of_sums_and_with_weights_of_one_the_soft_optimum():
    """Measured: the best is the likeliest in all; 0.08 to 0.16 away (uniform: 0.26 to 0.60), and as far after
    6000 episodes; 0.001 to 0.007 away with all weights 1.

    A product of policies can express the optimum of a sum. FOP's weights scale the agents' values as they
    please, the critic fits either way, and the policies take the scaled values at the common temperature.
    """
    policies, with_ones = (learned("fop", "ind", True, mixer=mixer) for mixer in (None, Advantage()))
    assert likeliest(policies) == likeliest(with_ones) == likeliest(SUMS)
    assert (away(policies, SUMS) < away(UNIFORM, SUMS)).all()
    assert 0.05 <= away(policies, SUMS).mean() <= 0.25
    assert away(with_ones, SUMS).max() <= 0.03


def test_a_product_of_policies_is_not_at_the_soft_optimum_of_any_game():
    """Measured: 0.05 to 0.29 away, by weights of 1, which reach the optimum of sums."""
    policies = learned("fop", "ind", False, mixer=Advantage())
    assert away(policies, ANY).mean() >= 0.1
