"""SMAX, the battles of JaxMARL, at a number of units: what our steps a second are compared with."""

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from macpf.types import PRNGKey


def installed() -> bool:
    """Is JaxMARL there?"""
    return importlib.util.find_spec("jaxmarl") is not None


def battles(allies: int, enemies: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """How copies of a battle of marines begin, and how they go on under random legal actions.

    Against SMAX's own heuristic enemy, eight frames a step; a battle that ended begins anew by itself. What
    agents observe is carried along, as it is beside ours.
    """
    # JaxMARL prints when it is imported, and leaves standard output where the process had it first.
    with contextlib.redirect_stdout(sys.stderr), contextlib.redirect_stderr(sys.stderr):
        smax = importlib.import_module("jaxmarl.environments.smax")
        scenario = importlib.import_module("jaxmarl.environments.smax.smax_env").Scenario
    marines = jnp.zeros(allies + enemies, jnp.uint8)
    env = smax.HeuristicEnemySMAX(scenario=scenario(marines, allies, enemies, False, False))

    def begin(key: PRNGKey) -> Any:
        seen, state = env.reset(key)
        return state, seen, jnp.zeros(())

    def go_on(carry: Any, key: PRNGKey) -> Any:
        state, _, _ = carry
        step_key, *act_keys = jax.random.split(key, 1 + allies)
        avail = env.get_avail_actions(state)
        chances = {agent: jnp.where(avail[agent] > 0, 0.0, -jnp.inf) for agent in env.agents}
        actions = {
            agent: jax.random.categorical(act_key, chances[agent])
            for agent, act_key in zip(env.agents, act_keys, strict=True)
        }
        seen, state, reward, _, _ = env.step(step_key, state, actions)
        return state, seen, reward[env.agents[0]]

    return begin, go_on
