"""What an agent must not see does not change what it does, where others are not observed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import macpf
from macpf.algorithms import ALGORITHMS
from macpf.envs.mpe.world import World, observe
from tests.helpers import quick_jit

DECENTRALISED = [name for name in ALGORITHMS if name != "central"]
WORLDS, STEPS = 16, 3


def actions_of(algorithm: Any, env: Any, learner: Any, own_key: Any, others_key: Any) -> Any:
    """What all agents do in some moments: agent 0 and the landmarks by one key, the others by another."""
    world_key, own_key = jax.random.split(own_key)
    landmarks = env.reset(world_key)[0].landmarks
    shape = (STEPS, 2, env.n_agents, 2)
    own, others = (jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) for key in (own_key, others_key))
    moments = jnp.where((jnp.arange(env.n_agents) == 0)[None, None, :, None], own, others)
    memory, chosen = algorithm.init_memory(env.spec), []
    for position, velocity in moments:
        seen = observe(env, World(position, velocity, landmarks, jnp.zeros((), jnp.int32)))
        actions, memory = algorithm.execute(learner, memory, seen, own_key)
        chosen.append(actions)
    return jnp.stack(chosen)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        (name, task)
        for name in DECENTRALISED
        for task in ("mpe/formation-control", *(["mpe/line-control"] if name == "macpf-plus" else []))
    ],
)
def test_an_agent_acts_alike_wherever_those_are_whom_it_does_not_see(name: str, task: str):
    env: Any = macpf.make(task)
    algorithm: Any = macpf.experiment(name, task).algorithm
    keys = jax.random.split(jax.random.key(1), WORLDS)
    fresh = quick_jit(lambda key: algorithm.init(key, env.spec))(jax.random.key(0))
    learner = jax.tree.map(lambda x: x if x.dtype == jnp.int32 else 4 * x, fresh)  # one with preferences
    act = quick_jit(jax.vmap(lambda own, others: actions_of(algorithm, env, learner, own, others), (0, None)))
    one, two = (np.asarray(act(keys, jax.random.key(seed))) for seed in (2, 3))
    assert one.shape == (WORLDS, STEPS, 3)
    assert (one[:, :, 0] == two[:, :, 0]).all()
    assert (one[:, :, 1:] != two[:, :, 1:]).any(), "the others are not elsewhere"
    assert len(np.unique(one[:, :, 0])) > 1, "agent 0 does the same everywhere"
