"""Playing episodes so that the states of the environment are kept, with the keys that evaluations use."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from macpf.types import Actions, Algorithm, Controller, Environment, Observation, PRNGKey

# What the agents do in a state of which they see the observation, and what they carry on to the next.
Choose = Callable[[Any, Any, Observation, PRNGKey], tuple[Actions, Any]]


class Record(eqx.Module):
    """One padded episode: row t of `states` is at time t, row t of the others is of the step from t on."""

    states: Any
    actions: Int[Array, "*b N"]
    keys: UInt32[Array, "*b 2"]
    reward: Float[Array, "*b"]
    won: Bool[Array, "*b"]
    mask: Bool[Array, "*b"]


@dataclass(frozen=True)
class Played:
    """One episode as it was, without padding: T + 1 states (numpy), T joint actions and rewards.

    With `keys`, the words of the keys that `env.step` was given, a step can be looked at again.
    """

    states: Any
    actions: Int[np.ndarray, "T N"]
    keys: UInt32[np.ndarray, "T 2"]
    reward: Float[np.ndarray, " T"]
    won: bool

    @property
    def steps(self) -> int:
        return len(self.reward)


def record(env: Environment[Any], choose: Choose, begin: Callable[[Any], Any], key: PRNGKey) -> Record:
    """One episode, as `rollout.play` and `score_controller` play it; `begin`: what agents carry at first."""
    reset_key, key = jax.random.split(key)
    state, first = env.reset(reset_key)

    def advance(carry, key):
        state, observation, carried, alive = carry
        act_key, step_key = jax.random.split(key)
        actions, carried = choose(carried, state, observation, act_key)
        state_next, arrived = env.step(state, actions, step_key)
        state_next, observation = jax.tree.map(
            lambda new, old: jnp.where(alive, new, old),
            (state_next, arrived.observation),
            (state, observation),
        )
        reward, key_data = jnp.where(alive, arrived.reward, 0.0), jax.random.key_data(step_key)
        row = (state_next, actions, key_data, reward, alive & arrived.won, alive)
        return (state_next, observation, carried, alive & ~(arrived.terminated | arrived.truncated)), row

    start = (state, first.observation, begin(state), jnp.asarray(True))
    _, (later, *rows) = jax.lax.scan(advance, start, jax.random.split(key, env.spec.horizon))
    states = jax.tree.map(lambda first, later: jnp.concatenate([first[None], later]), state, later)
    return Record(states, *rows)


def of_policy(
    algorithm: Algorithm[Any],
    env: Environment[Any],
    learner: Any,
    key: PRNGKey,
    *,
    policy: str = "ind",
    episodes: int = 3,
    sample: bool = False,
) -> tuple[Played, ...]:
    """Some episodes of a learned policy: the first of those that `evaluation.rollouts` plays."""
    act = partial(algorithm.policies[policy], learner, sample=sample)
    memory = algorithm.init_memory(env.spec)
    return _play_all(
        env, lambda memory, _, seen, key: act(memory, seen, key), lambda _: memory, key, episodes
    )


def of_controller(
    env: Environment[Any], controller: Controller, key: PRNGKey, *, episodes: int = 3
) -> tuple[Played, ...]:
    """Some episodes of a controller written by hand: the first that `score_controller` plays."""

    def choose(plan: Any, state: Any, _: Observation, key: PRNGKey) -> tuple[Actions, Any]:
        return controller.act(env, state, plan, key), plan

    return _play_all(env, choose, lambda state: controller.plan(env, state), key, episodes)


def _play_all(
    env: Environment[Any], choose: Choose, begin: Callable[[Any], Any], key: PRNGKey, episodes: int
) -> tuple[Played, ...]:
    """All episodes as one program, then each without its padding."""
    play = jax.jit(jax.vmap(partial(record, env, choose, begin)))
    found = jax.tree.map(np.asarray, play(jax.random.split(key, episodes)))
    return tuple(_cut(jax.tree.map(lambda x, e=e: x[e], found)) for e in range(episodes))


def _cut(episode: Record) -> Played:
    """An episode without its padding."""
    steps = int(np.sum(episode.mask))
    states = jax.tree.map(lambda x: x[: steps + 1], episode.states)
    actions, keys, reward = (np.asarray(x[:steps]) for x in (episode.actions, episode.keys, episode.reward))
    return Played(states, actions, keys, reward, bool(np.any(episode.won)))
