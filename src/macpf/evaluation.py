"""One evaluator for all algorithms and environments."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from macpf.rollout import play
from macpf.types import Algorithm, Controller, Environment, PRNGKey, Trajectory

AT_ONCE = 500  # episodes of a controller: one that looks ahead considers much in each of them


class Evaluation(eqx.Module):
    """What a policy achieved in some episodes, episode by episode: return, win, length."""

    returns: Float[Array, " E"]
    won: Float[Array, " E"]
    length: Float[Array, " E"]


def rollouts(
    algorithm: Algorithm[Any],
    env: Environment[Any],
    learner: Any,
    key: PRNGKey,
    *,
    policy: str = "ind",
    episodes: int = 32,
    sample: bool = False,
) -> Trajectory:
    """Some episodes of a learned policy."""
    act = partial(algorithm.policies[policy], learner, sample=sample)
    memory = algorithm.init_memory(env.spec)
    return jax.vmap(lambda key: play(env, act, memory, key))(jax.random.split(key, episodes))


def score(episodes: Trajectory) -> Evaluation:
    """What came of some episodes: undiscounted return, whether they were won, how long they lasted."""
    returns = jnp.sum(jnp.where(episodes.mask, episodes.reward, 0.0), axis=1)
    length = jnp.sum(episodes.mask, axis=1)
    return Evaluation(
        returns, jnp.any(episodes.won, axis=1).astype(returns.dtype), length.astype(returns.dtype)
    )


def score_controller(
    env: Environment[Any], controller: Controller, key: PRNGKey, *, episodes: int = 1000
) -> Evaluation:
    """What a controller written by hand achieves."""

    def play_one(key: PRNGKey) -> tuple[Array, Array, Array]:
        reset_key, key = jax.random.split(key)
        state, _ = env.reset(reset_key)
        plan = controller.plan(env, state)

        def advance(carry, key):
            state, alive = carry
            act_key, step_key = jax.random.split(key)
            state, arrived = env.step(state, controller.act(env, state, plan, act_key), step_key)
            row = (jnp.where(alive, arrived.reward, 0.0), 1.0 * (alive & arrived.won), 1.0 * alive)
            return (state, alive & ~(arrived.terminated | arrived.truncated)), row

        start = (state, jnp.asarray(True))
        _, rows = jax.lax.scan(advance, start, jax.random.split(key, env.spec.horizon))
        return jax.tree.map(lambda steps: jnp.sum(steps, axis=0), rows)

    play_all = jax.jit(partial(jax.lax.map, play_one, batch_size=AT_ONCE))
    return Evaluation(*play_all(jax.random.split(key, episodes)))
