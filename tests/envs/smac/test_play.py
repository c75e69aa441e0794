"""Whole episodes: random legal play, and scripted policies whose success tells how hard a map is."""

import jax
import pytest

from macpf.envs.smac import SCENARIOS, SMAC, Rules
from macpf.envs.smac.scripted import policies_for, win_rates
from macpf.envs.smac.soak import worst_of
from macpf.rollout import play
from macpf.types import Memory
from tests.helpers import quick_jit

# Every unit and every kind of order at least once; the soak plays all maps.
KINDS = ("MMM", "1c3s5z", "6h_vs_8z", "so_many_baneling", "2c_vs_64zg", "2m_vs_1z", "2s_vs_1sc")


def test_the_kinds_cover_every_unit_and_order():
    def features(names):
        scenarios = [SCENARIOS[name] for name in names]
        units = {g.unit for s in scenarios for g in (*s.allies, *s.enemies)}
        return units, {type(s.order) for s in scenarios}

    assert features(KINDS) == features(SCENARIOS)


@pytest.mark.parametrize("name", KINDS)
def test_random_play_keeps_the_rules(name):
    worst = quick_jit(lambda key: worst_of(SMAC(name), key, copies=4, steps=40))(jax.random.key(1))
    assert int(worst.faults) == 0
    assert float(worst.overlap) < 0.051  # what the rules allow, and rounding


def test_random_play_ends_by_the_limit():
    worst = quick_jit(lambda key: worst_of(SMAC("3m"), key, copies=4, steps=120))(jax.random.key(1))
    assert int(worst.too_long) == 0
    assert int(worst.episodes) >= 8  # the limit is 60


def rates(name: str, *policies: str, vary: float = 0.3) -> list[float]:
    """Win rates from places that vary a little, for from SMAC's own all battles are much alike."""
    env = SMAC(name, Rules(spawn_jitter=vary))
    known = policies_for(env)
    return list(
        win_rates(env, jax.random.key(0), 16, {policy: known[policy] for policy in policies}).values()
    )


def test_eight_marines_win_easily_and_eight_against_nine_only_with_skill():
    assert rates("8m", "hold the line")[0] > 0.9
    nearest, line = rates("8m_vs_9m", "attack nearest", "hold the line")
    assert nearest < 0.2
    assert line > nearest + 0.4


def test_a_wall_in_the_corridor_beats_the_open_field(optimised):
    field, wall = rates("corridor", "attack nearest", "hold the choke")
    assert field < 0.5
    assert wall > field + 0.4


def test_stalkers_beat_zealots_by_kiting():
    nearest, kiting = rates("3s_vs_3z", "attack nearest", "kite")
    assert nearest < 0.2
    assert kiting > 0.8


@pytest.mark.parametrize("name", ["2m_vs_1z", "2s_vs_1sc"])
def test_two_win_by_taking_turns(name):
    """Against a zealot the chased one runs; against a spine crawler the hurt one leaves."""
    assert rates(name, "take turns", vary=0.0)[0] > 0.7


def test_an_episode_is_a_trajectory_like_any_other():
    env = SMAC("2m_vs_1z")
    memory = Memory(jax.numpy.zeros((2, 1)), jax.numpy.full(2, -1))

    def act(memory, observation, key):
        return jax.numpy.ones(2, jax.numpy.int32) * ~observation.avail[:, 0], memory

    episode = quick_jit(lambda key: play(env, act, memory, key))(jax.random.key(0))
    length = int(episode.mask.sum())
    assert 5 < length < 150
    assert bool(episode.terminated[length - 1])
    assert not bool(episode.won.any())
