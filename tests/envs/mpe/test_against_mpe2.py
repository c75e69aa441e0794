"""Step by step against the package mpe2, which moves the position first."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from macpf.envs.mpe import FormationControl, LineControl, SimpleSpread
from macpf.envs.mpe.physics import DAMPING, DT
from tests.envs.mpe.worlds import KEY, world
from tests.helpers import quick_jit

pytest.importorskip("mpe2", reason="the package mpe2 is not installed")


def theirs(name: str, seed: int, **options: Any) -> Any:
    """A parallel environment of mpe2, reset."""
    env = pytest.importorskip(f"mpe2.{name}").parallel_env(max_cycles=25, **options)
    env.reset(seed=seed)
    return env


def crowded(env: Any) -> None:
    """Brings the agents nearer together, so that they touch."""
    for agent in env.unwrapped.world.agents:
        agent.state.p_pos *= 0.15


def velocity_first(env: Any) -> None:
    """Makes mpe2 move with the new velocity, as the original does."""
    agents = env.unwrapped.world.agents

    def integrate(forces: list[Any]) -> None:
        for agent, force in zip(agents, forces, strict=False):
            agent.state.p_vel = agent.state.p_vel * (1 - DAMPING) + force * DT
            agent.state.p_pos = agent.state.p_pos + agent.state.p_vel * DT

    env.unwrapped.world.integrate_state = integrate


def bodies(env: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    inside = env.unwrapped.world
    position, velocity = ([getattr(a.state, p) for a in inside.agents] for p in ("p_pos", "p_vel"))
    return np.array(position), np.array(velocity), np.array([mark.state.p_pos for mark in inside.landmarks])


def compare(ours: Any, env: Any, seed: int) -> int:
    """Plays an episode in both, and returns how many steps were made in contact."""
    step = quick_jit(ours.step)
    position, velocity, landmarks = bodies(env)
    state = world(position, landmarks, velocity)
    names, rng, touched = env.possible_agents, np.random.default_rng(seed), 0
    for t in range(25):
        actions = rng.integers(5, size=len(names))
        obs, rewards, terminations, truncations, _ = env.step(dict(zip(names, actions.tolist(), strict=True)))
        state, arrived = step(state, jnp.asarray(actions, jnp.int32), KEY)
        position, velocity, _ = bodies(env)
        assert_allclose(state.position, position, atol=2e-4, err_msg=f"step {t}")
        assert_allclose(state.velocity, velocity, atol=2e-3, err_msg=f"step {t}")
        seen = np.stack([obs[name] for name in names])
        assert_allclose(arrived.observation.obs, seen, atol=2e-3, err_msg=f"step {t}")
        assert_allclose(arrived.observation.state, seen.reshape(-1), atol=2e-3)
        assert_allclose(arrived.reward, sum(rewards.values()), atol=2e-3, err_msg=f"step {t}")
        assert bool(arrived.terminated) == any(terminations.values())
        assert bool(arrived.truncated) == any(truncations.values())
        apart = np.linalg.norm(position[:, None] - position, axis=-1) + 9 * np.eye(len(names))
        touched += int(apart.min() < 2 * ours.radius)
    return touched


@pytest.mark.parametrize("seed", range(3))
def test_simple_spread(seed):
    ours = SimpleSpread(spread_reward="local-ratio", integration="position-first")
    env = theirs("simple_spread_v3", seed, local_ratio=0.5)
    crowded(env)
    assert compare(ours, env, seed) > 0


def test_simple_spread_of_four_with_another_ratio_and_the_velocity_first():
    ours = SimpleSpread(n_agents=4, spread_reward="local-ratio", local_ratio=0.2)
    env = theirs("simple_spread_v3", 5, N=4, local_ratio=0.2)
    crowded(env)
    velocity_first(env)
    assert compare(ours, env, seed=5) > 0


@pytest.mark.parametrize("agents", [3, 4])
@pytest.mark.parametrize(
    ("name", "make"), [("simple_formation_v1", FormationControl), ("simple_line_v1", LineControl)]
)
def test_formation_and_line(name, make, agents):
    env = theirs(name, agents, N=agents)
    compare(make(n_agents=agents, integration="position-first"), env, seed=agents)


@pytest.mark.parametrize(
    ("name", "make"), [("simple_formation_v1", FormationControl), ("simple_line_v1", LineControl)]
)
def test_contacts_of_formation_and_line(name, make):
    env = theirs(name, 7)
    inside = env.unwrapped.world
    inside.agents[0].state.p_pos = np.add(inside.agents[1].state.p_pos, [0.02, 0.03])
    assert compare(make(n_agents=4, integration="position-first"), env, seed=7) > 0
