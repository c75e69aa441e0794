"""Small replays that several tests look at, each made once; nothing is trained for them."""

import functools
import tempfile
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import macpf
from macpf import training
from macpf.envs.mpe.controllers import CONTROLLERS
from macpf.envs.mpe.spread import SimpleSpread
from macpf.envs.smac import SMAC
from macpf.envs.smac.observe import FIRST_TARGET, STOP
from macpf.report.replay import Played, Replay, replay_of_controller, replay_of_run
from macpf.report.replay.data import replay
from macpf.report.replay.smac import BATTLE
from macpf.runs.checkpoints import Checkpoints
from macpf.runs.directory import create
from macpf.runs.drive import keys_of
from tests.envs.smac.stage import STILL, duel, staged, step_of
from tests.tiny import tiny_experiment

SHORT = SimpleSpread(horizon=4)


def untrained(experiment: macpf.Experiment, seeds: int) -> macpf.Run:
    """A run whose learners know nothing yet, with a checkpoint of them."""
    run = create(Path(tempfile.mkdtemp(prefix="macpf-tests-")) / "run", experiment, range(seeds))
    state = jax.jit(jax.vmap(partial(training.begin, experiment)))(keys_of(run.seeds))
    checkpoints = Checkpoints(run.checkpoints)
    checkpoints.save(0, state)
    checkpoints.wait()
    checkpoints.close()
    return macpf.load(run.path)


@functools.cache
def game_run() -> macpf.Run:
    """Two learners of the matrix game."""
    return untrained(tiny_experiment(), 2)


@functools.cache
def point_run() -> macpf.Run:
    """One learner of the multi-goal task with episodes of six steps."""
    return untrained(tiny_experiment("multi-goal", env=macpf.MultiGoal(horizon=6)), 1)


@functools.cache
def of_spread() -> Replay:
    """Two episodes of four steps of a controller on simple spread."""
    return replay_of_controller("mpe/simple-spread", SHORT, "random", CONTROLLERS["random"], 2, seed=3)


@functools.cache
def of_game() -> Replay:
    """Five sampled episodes of the dependent policy of the second learner."""
    return replay_of_run(game_run(), "dep", 5, sample=True, seed=7, learner=1)


STAGE = SMAC(duel("1 colossus, 2 marine, 1 medivac, 1 baneling", "1 marine, 3 zealot"), rules=STILL)
COLOSSUS, MARINE, WOUNDED, MEDIVAC, BANELING, ENEMY, VICTIM, AIM, BESIDE = range(9)  # the units on the stage
PLACES = (
    (6.0, 26.0),
    (6.0, 16.0),
    (8.0, 6.0),
    (6.0, 6.0),
    (24.0, 6.0),
    (10.0, 16.0),
    (25.05, 6.0),
    (11.0, 26.0),
    (11.0, 27.0),
)


@functools.cache
def battle() -> Played:
    """Two steps: a duel of marines, a beam across two zealots, a heal, and a baneling that bursts."""
    attack = {COLOSSUS: AIM, MARINE: ENEMY, BANELING: VICTIM}
    chosen = [FIRST_TARGET + attack[u] - STAGE.field.n if u in attack else STOP for u in range(STAGE.field.n)]
    chosen[MEDIVAC] = FIRST_TARGET + WOUNDED
    states, rewards = [staged(STAGE, PLACES, health={WOUNDED: 20.0, ENEMY: 5.0})], []
    keys = jax.random.split(jax.random.key(3))
    for key in keys:
        state, arrived = step_of(STAGE)(states[-1], jnp.asarray(chosen, jnp.int32), key)
        states.append(state)
        rewards.append(float(arrived.reward))
    return Played(
        jax.tree.map(lambda *moments: np.stack(moments), *states),
        np.asarray([chosen] * 2, np.int32),
        np.asarray(jax.random.key_data(keys)),
        np.asarray(rewards, np.float32),
        False,
    )


@functools.cache
def of_battle() -> Replay:
    """The same as a replay."""
    return replay("smac/stage", "by hand", STAGE, BATTLE, [battle()])
