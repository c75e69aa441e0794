"""The Python side: train, load, act, resume; on tasks of the package and on one's own."""

from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import macpf
from macpf.runs.checkpoints import Checkpoints
from tests.tiny import tiny_experiment, tiny_run


def test_loaded_policies_act_as_evaluated() -> None:
    run = macpf.load(tiny_run().path)
    env = run.experiment.env
    for name in ("ind", "dep"):
        for seed in run.seeds:
            agent = run.policy(name, seed=seed)
            state, arrived = env.reset(jax.random.key(0))
            actions, memory = agent(agent.start(), arrived.observation)
            _, arrived = env.step(state, actions, jax.random.key(1))
            assert arrived.reward == run.evaluate(name, episodes=1).returns[seed, 0]
            np.testing.assert_array_equal(memory.previous, actions)


def test_a_sampled_policy_needs_a_key() -> None:
    agent = tiny_run().policy(sample=True)
    _, arrived = tiny_run().experiment.env.reset(jax.random.key(0))
    with pytest.raises(macpf.UserError, match="needs a key"):
        agent(agent.start(), arrived.observation)


def test_unknown_seed_and_policy() -> None:
    with pytest.raises(macpf.UserError, match="unknown seed '7'"):
        tiny_run().policy(seed=7)
    with pytest.raises(macpf.UserError, match="unknown policy"):
        tiny_run().policy("central")


def test_one_seed_alone_is_the_same_as_among_others(tmp_path: Path) -> None:
    alone = macpf.train(tiny_experiment(), seeds=[1], out=tmp_path / "alone")
    among = [line for line in tiny_run().metrics if line["seed"] == 1]
    for one, other in zip(alone.metrics, among, strict=True):
        assert one["return_ind"] == other["return_ind"]
        assert one["return_dep"] == other["return_dep"]
        for name in ("l_ind", "l_dep", "j_ind", "j_dep", "entropy_ind"):
            assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-4)


@dataclass(frozen=True)
class Echo:
    """A task of a user's own: each agent is told a number at every step, and both should repeat it.

    Its episodes end after half of the time they could take.
    """

    @property
    def spec(self) -> macpf.EnvSpec:
        return macpf.EnvSpec(n_agents=2, n_actions=3, obs_dim=3, state_dim=1, horizon=4)

    def reset(self, key):
        told = jax.random.randint(key, (), 0, 3)
        return (told, jnp.zeros((), jnp.int32)), self._arrive(told, jnp.zeros((), jnp.int32), jnp.zeros(()))

    def step(self, state, actions, key):
        told, time = state
        reward = jnp.mean(actions == told)
        told = jax.random.randint(key, (), 0, 3)
        return (told, time + 1), self._arrive(told, time + 1, reward)

    def _arrive(self, told, time, reward):
        seen = macpf.Observation(
            jnp.tile(jax.nn.one_hot(told, 3), (2, 1)),
            jnp.ones(1),
            jnp.ones((2, 3), bool),
            jnp.ones((2, 2), bool),
        )
        never = jnp.asarray(False)
        return macpf.TimeStep(seen, reward, terminated=time >= 2, truncated=never, won=never)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> macpf.Run:
    macpf.check_env(Echo())
    made = macpf.experiment("macpf", Echo())
    small = replace(made, steps=80, eval_every=40, batch=4, burn_in=4, replay=16, eval_episodes=2, parallel=2)
    small = replace(small, algorithm=replace(small.algorithm, hidden=8))
    return macpf.train(small, seeds=1, out=tmp_path_factory.mktemp("own") / "run")


def test_an_environment_of_ones_own_trains_and_loads(own: macpf.Run) -> None:
    assert own.experiment.task == "Echo"
    assert np.isfinite([line["l_dep"] for line in own.metrics]).all()
    again = macpf.load(own.path, env=Echo())
    for a, b in zip(jax.tree.leaves(again.learners), jax.tree.leaves(own.learners), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_run_lasts_for_its_steps_though_episodes_end_early(own: macpf.Run) -> None:
    steps = [line["steps"] for line in own.metrics]
    assert steps == [28, 48, 68, 88]  # 4 episodes of 2 steps to begin with, then 10 between evaluations
    assert own.experiment.epochs == 2
    assert own.experiment.steps == 80
    assert macpf.resume(own.path, env=Echo()).metrics == own.metrics, "nothing is left to do"


def test_a_run_on_ones_own_environment_asks_for_it(own: macpf.Run) -> None:
    with pytest.raises(macpf.UserError, match=r"environment of your own \(Echo\)"):
        macpf.load(own.path)


def test_a_half_written_checkpoint_is_never_picked_up(tmp_path: Path) -> None:
    run = macpf.train(tiny_experiment(), seeds=1, out=tmp_path / "run")
    folder = run.directory.checkpoints
    latest = Checkpoints(folder).latest()
    assert latest is not None
    assert latest == run.experiment.epochs
    half = folder / f"{latest + 1}.part"
    half.mkdir()
    (half / "learner.npz").write_bytes(b"PK")
    assert Checkpoints(folder).latest() == latest
    assert macpf.resume(run.path).metrics == run.metrics
