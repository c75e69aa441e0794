"""What weapons do: numbers worked out by hand from the units' figures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macpf.envs.smac import SMAC, Rules
from macpf.envs.smac.combat import wound
from macpf.envs.smac.maps import AttackMove
from tests.envs.smac.stage import STILL, duel, play_frames, staged
from tests.helpers import few

ATTACK = 6
STOP, NORTH = 1, 2


def lives(history, unit: int) -> np.ndarray:
    return np.asarray([battle.health[unit] for battle in history])


# One against one


def test_a_marine_kills_an_idle_marine_in_eight_shots():
    env = SMAC(duel("1 marine", "1 marine"), STILL)
    start = staged(env, [(10, 16), (15, 16)], alarm=[0], cooldown={1: 1e6})
    life = lives(play_frames(env, start, [ATTACK], 110), 1)
    shots = np.flatnonzero(np.diff(life) < 0)
    assert np.diff(life)[shots].tolist() == [-6.0] * 7 + [-3.0]
    assert shots[0] == 0
    # Seven periods of 13.77 frames, each shot in the frame in which its weapon is ready: no time is lost.
    assert shots[-1] == int(np.ceil(7 * 0.8608 * 16 - 1e-3))


@few(8)
@given(seed=st.integers(0, 1000))
def test_the_delay_of_shots_is_random_within_bounds(seed):
    env = SMAC(duel("1 marine", "1 marine"), Rules(first_frames=0))
    start = staged(env, [(10, 16), (15, 16)], cooldown={1: 1e6})
    life = lives(play_frames(env, start, [ATTACK], 115, seed), 1)
    shots = np.flatnonzero(np.diff(life) < 0)
    assert len(shots) == 8
    assert set(np.diff(shots)) <= {12, 13, 14, 15, 16}  # 13.77 - 1 to 13.77 + 2, in whole frames
    assert 7 * 12.77 <= shots[-1] <= 7 * 15.77 + 1


def test_shots_take_the_time_that_the_figures_say_on_average():
    env = SMAC(duel("1 marine", "1 marine"), Rules(first_frames=0))
    start = staged(env, [(10, 16), (15, 16)], cooldown={1: 1e6})
    last = [
        np.flatnonzero(np.diff(lives(play_frames(env, start, [ATTACK], 115, s), 1)) < 0)[-1]
        for s in range(30)
    ]
    assert 7 * 13.77 < np.mean(last) < 7 * 14.9  # on average half a frame more than the period


def test_a_zergling_needs_35_bites_for_a_zealot():
    env = SMAC(duel("1 zergling", "1 zealot"), STILL)
    start = staged(env, [(10, 16), (10.9, 16)], cooldown={1: 1e6})
    history = play_frames(env, start, [ATTACK], 400)
    both = lives(history, 1) + np.asarray([battle.shield[1] for battle in history])
    bites = -np.diff(both)[np.diff(both) < 0]
    assert bites.tolist() == pytest.approx([5.0] * 10 + [4.0] * 25)
    assert history[-1].health[1] == 0


def test_a_zealot_strikes_twice_and_armour_counts_twice():
    env = SMAC(duel("1 zealot", "1 marauder"), STILL)
    start = staged(env, [(10, 16), (11, 16)], cooldown={1: 1e6})
    assert play_frames(env, start, [ATTACK], 1)[-1].health[1] == 125 - 2 * (8 - 1)


def test_bonus_damage_is_for_the_armoured():
    env = SMAC(duel("1 marauder, 1 stalker", "1 marauder, 1 zealot"), STILL)
    start = staged(env, [(10, 16), (10, 18), (14, 16), (14, 18)], cooldown={2: 1e6, 3: 1e6})
    on_marauder = play_frames(env, start, [ATTACK, ATTACK], 1)[-1]
    assert on_marauder.health[2] == 125 - (20 - 1) - (14 - 1)
    on_zealot = play_frames(env, start, [ATTACK + 1, ATTACK + 1], 1)[-1]
    assert on_zealot.shield[3] == 50 - 10 - 10


@pytest.mark.parametrize(
    ("shield", "armour", "raw", "hits", "left"),
    [
        (0.0, 0.0, 6.0, 1.0, 94.0),
        (0.0, 1.0, 16.0, 2.0, 86.0),
        (3.0, 1.0, 5.0, 1.0, 99.0),  # 2 come through, 1 is left of them
        (4.8, 1.0, 5.0, 1.0, 99.5),  # 0.2 come through: the least that a hit does is 0.5
        (8.0, 1.0, 16.0, 2.0, 93.0),  # the first of two goes into the shield
        (16.0, 1.0, 16.0, 2.0, 100.0),
        (0.0, 1.0, 0.0, 0.0, 100.0),
    ],
)
def test_hits_on_shield_armour_and_life(shield, armour, raw, hits, left):
    health, shields = wound(
        jnp.asarray([100.0]),
        jnp.asarray([shield]),
        np.asarray([armour]),
        jnp.asarray([raw]),
        jnp.asarray([hits]),
    )
    assert float(health[0]) == pytest.approx(left)
    assert float(shields[0]) == pytest.approx(max(shield - raw, 0))


@given(
    st.floats(0, 200),
    st.floats(0, 150),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.integers(0, 20),
    st.floats(1, 40),
)
def test_no_hit_heals_and_none_is_lost(health, shield, armour, hits, damage):
    raw = hits * damage
    life, left = wound(
        jnp.asarray([health]),
        jnp.asarray([shield]),
        np.asarray([armour]),
        jnp.asarray([raw]),
        jnp.asarray([1.0 * hits]),
    )
    assert 0 <= float(life[0]) <= health + 1e-5
    assert -1e-5 <= float(left[0]) <= shield + 1e-5
    done = shield - float(left[0]) + health - float(life[0])
    assert done <= raw + 0.5 * hits + 1e-3
    if raw > shield + hits * armour + hits and health > raw:
        assert done == pytest.approx(raw - armour * np.ceil(hits * (raw - shield) / raw - 1e-4), abs=1e-2)


# Beams and explosions


def test_a_beam_is_a_rectangle_across_the_line_of_fire():
    env = SMAC(duel("1 colossus", "6 zergling"), STILL)
    centre = (16.0, 16.0)
    around = [(16.0, 16.0 + d) for d in (1.77, -1.78, 1.0)] + [(16.0 + d, 16.0) for d in (0.52, 0.53)]
    start = staged(env, [(11, 16), centre, *around], cooldown=dict.fromkeys(range(1, 7), 1e6))
    after = play_frames(env, start, [ATTACK], 1)[-1]
    # Half the length is 1.4, half the width 0.15, a zergling's radius 0.375.
    assert (np.asarray(after.health[1:]) == 0).tolist() == [True, True, False, True, True, False]


def test_a_beam_turns_with_the_line_of_fire():
    env = SMAC(duel("1 colossus", "3 zergling"), STILL)
    start = staged(env, [(16, 11), (16, 16), (17.7, 16), (16, 17)], cooldown=dict.fromkeys(range(1, 4), 1e6))
    after = play_frames(env, start, [ATTACK], 1)[-1]
    assert (np.asarray(after.health[1:]) == 0).tolist() == [True, True, False]


def test_a_beam_spares_friends_and_hits_twice():
    env = SMAC(duel("1 colossus, 1 zealot", "1 zealot"), STILL)
    start = staged(env, [(11, 16), (16, 17), (16, 16)], cooldown={2: 1e6})
    after = play_frames(env, start, [ATTACK, STOP], 1)[-1]
    assert (float(after.health[1]), float(after.shield[1])) == (100, 50)
    assert (float(after.health[2]), float(after.shield[2])) == (100, 10)
    again = play_frames(
        env, staged(env, [(11, 16), (16, 17), (16, 16)], shield={2: 0.0}, unhurt={2: 9.0}), [ATTACK, STOP], 1
    )[-1]
    assert float(again.health[2]) == 100 - 2 * 19


def bane_stage(**changes):
    env = SMAC(duel("5 zealot", "5 baneling", order=AttackMove((10.0, 16.0))), STILL)
    zealots = [(10.0, 16.0), (12.7, 16.0), (12.72, 17.0), (20, 10), (22, 10)]
    banelings = [(10.9, 16.0), (16, 28), (18, 28), (20, 28), (22, 28)]
    return env, staged(env, zealots + banelings, **changes)


def test_an_explosion_reaches_its_radius_and_that_of_the_victim():
    env, start = bane_stage()
    after = play_frames(env, start, [STOP] * 5, 1)[-1]
    assert after.health[5] == 0
    # Its weapon reaches 0.25 and both radii; its blast 2.2 and the radius of a zealot: 2.7 from (10.9, 16).
    lost = 150 - np.asarray(after.health + after.shield)[:5]
    assert lost.tolist() == pytest.approx([35.0, 35.0, 35.0, 0.0, 0.0])
    far = np.hypot(12.72 + 0.9 - 10.9, 1.0)
    assert far > 2.7
    env, start = bane_stage(x={2: 13.62})
    assert play_frames(env, start, [STOP] * 5, 1)[-1].shield[2] == 50
    assert (np.asarray(after.health[6:]) == 30).all()


def test_a_killed_baneling_explodes_too_and_once():
    env, start = bane_stage(health={5: 1.0}, cooldown={5: 1e6})
    history = play_frames(env, start, [ATTACK, STOP, STOP, STOP, STOP], 3)
    assert history[1].health[5] == 0
    assert [float(battle.shield[0]) for battle in history] == [50, 15, 15, 15]


def test_five_explosions_kill_a_zealot():
    env = SMAC(duel("1 zealot", "5 baneling"), STILL)
    ring = [(10 + 0.9 * np.cos(a), 16 + 0.9 * np.sin(a)) for a in np.arange(5) * 2 * np.pi / 5]
    four = staged(env, [(10, 16), *ring], health={5: 0.0}, loaded={5: False})
    assert float(play_frames(env, four, [STOP], 1)[-1].health[0]) == 100 - (4 * 35 - 50) + 3
    five = staged(env, [(10, 16), *ring])
    assert float(play_frames(env, five, [STOP], 1)[-1].health[0]) == 0


def test_what_dies_in_an_explosion_explodes_a_frame_later():
    env = SMAC(duel("1 baneling, 1 zealot", "1 baneling, 1 zergling"), STILL)
    start = staged(env, [(10, 16), (20, 16), (10.9, 16), (25, 25)], health={2: 10.0}, cooldown={2: 1e6})
    history = play_frames(env, start, [ATTACK, STOP], 2)
    assert (float(history[1].health[0]), float(history[1].health[2])) == (0, 0)
    assert not bool(history[1].loaded[0])
    assert bool(history[1].loaded[2])
    assert not bool(history[2].loaded[2])


# Recovery


def test_shields_wait_160_frames_and_then_regain_one_in_eight():
    env = SMAC(duel("1 stalker", "1 zealot"), STILL)
    start = staged(env, [(10, 16), (25, 25)], shield={0: 10.0}, unhurt={0: 160.0})
    shield = [float(battle.shield[0]) for battle in play_frames(env, start, [STOP], 170)]
    assert shield[159] == 10
    assert shield[160] == pytest.approx(10.125)
    assert shield[168] == pytest.approx(11.125)


def test_a_hit_sets_the_wait_anew():
    env = SMAC(duel("1 stalker", "1 zealot"), STILL)
    start = staged(env, [(10, 16), (11, 16)], shield={0: 70.0}, cooldown={1: 3.0})
    history = play_frames(env, start, [STOP], 4)
    assert [float(battle.shield[0]) for battle in history] == pytest.approx(
        [70, 70.125, 70.25, 54.375, 54.375]
    )
    assert float(history[3].unhurt[0]) == 160


def test_zerg_regain_life_and_others_do_not():
    env = SMAC(duel("1 hydralisk, 1 marine", "1 zealot"), STILL)
    start = staged(env, [(10, 16), (10, 10), (25, 25)], health={0: 40.0, 1: 20.0, 2: 50.0})
    after = play_frames(env, start, [STOP, STOP], 16)[-1]
    assert np.asarray(after.health).tolist() == pytest.approx([40.2734, 20.0, 50.0])


def test_nothing_regenerates_beyond_its_maximum_or_from_death():
    env = SMAC(duel("2 zergling", "1 stalker"), STILL)
    start = staged(env, [(10, 16), (12, 16), (25, 25)], health={0: 34.99, 1: 0.0}, shield={2: 79.95})
    after = play_frames(env, start, [STOP, 0], 5)[-1]
    assert np.asarray(after.health).tolist() == [35.0, 0.0, 80.0]
    assert float(after.shield[2]) == 80


# Medivacs


def medic_stage(**changes):
    env = SMAC(duel("1 marine, 1 stalker, 1 medivac", "1 zealot"), STILL)
    return env, staged(env, [(10, 16), (12, 16), (11, 18), (25, 25)], **changes)


def test_a_medivac_heals_nine_a_second_for_a_third_of_energy_each():
    env, start = medic_stage(health={0: 20.0})
    after = play_frames(env, start, [STOP, STOP, ATTACK + 0], 16)[-1]
    assert float(after.health[0]) == pytest.approx(29.0)
    assert float(after.energy[2]) == pytest.approx(50 + 0.5625 - 9 * 0.33, abs=1e-3)


def test_a_medivac_stops_at_full_health():
    env, start = medic_stage(health={0: 44.9})
    after = play_frames(env, start, [STOP, STOP, ATTACK], 3)[-1]
    assert float(after.health[0]) == 45
    assert float(after.energy[2]) == pytest.approx(50 + 3 * 0.03515625 - 0.1 * 0.33, abs=1e-3)


def test_a_medivac_heals_only_what_lives_and_only_with_energy():
    env, start = medic_stage(health={1: 20.0})
    assert float(play_frames(env, start, [STOP, STOP, ATTACK + 1], 8)[-1].health[1]) == 20  # mechanical
    env, start = medic_stage(health={0: 20.0}, energy={2: 0.0})
    slow = play_frames(env, start, [STOP, STOP, ATTACK], 8)[-1]
    assert float(slow.health[0]) == pytest.approx(20 + 8 * 0.03515625 / 0.33, abs=1e-3)


def test_a_medivac_flies_to_a_patient_out_of_range_and_gathers_speed():
    env, start = medic_stage(health={0: 20.0}, y={2: 26.0})
    history = play_frames(env, start, [STOP, STOP, ATTACK], 30)
    y = np.asarray([float(battle.y[2]) for battle in history])
    pace = -np.diff(y)
    # 2.3125 cells per second and second, up to 2.75 cells per second.
    assert pace[0] < 0.01
    assert pace[18] < 2.75 / 16 * 1.001
    assert pace[25] == pytest.approx(2.75 / 16, rel=0.02)
    assert float(history[-1].health[0]) == 20


def test_the_opponents_medivac_heals_the_worst_wounded_near_it_by_itself():
    env = SMAC(duel("1 zealot", "2 marine, 1 medivac"), STILL)
    start = staged(env, [(5, 5), (20, 20), (21, 21), (22, 20)], health={1: 30.0, 2: 20.0})
    after = play_frames(env, start, [STOP], 8)[-1]
    assert np.asarray(after.health[1:3]).tolist() == pytest.approx([30.0, 20 + 8 * 0.5625])
    tired = staged(env, [(5, 5), (20, 20), (21, 21), (22, 20)], health={1: 30.0}, energy={3: 4.0})
    assert float(play_frames(env, tired, [STOP], 8)[-1].health[1]) == 30
    working = staged(
        env, [(5, 5), (20, 20), (21, 21), (22, 20)], health={1: 30.0}, energy={3: 4.0}, target={2: 0}
    )
    assert float(play_frames(env, working, [STOP], 8)[-1].health[1]) > 30
    enough = staged(env, [(5, 5), (20, 20), (21, 21), (22, 20)], health={1: 30.0}, energy={3: 5.2})
    assert float(play_frames(env, enough, [STOP], 16)[-1].health[1]) == pytest.approx(39)  # on below 5 too
    alike = staged(env, [(5, 5), (20, 21), (20, 19), (22, 20)], health={1: 20.0, 2: 20.0})
    served = play_frames(env, alike, [STOP], 2)
    assert [np.asarray(battle.health[1:3]).tolist() for battle in served] == [
        [20.0, 20.0],
        [20.5625, 20.0],  # the first of two alike
        [20.5625, 20.5625],  # then the other, who is the worse off now
    ]
    nearer = staged(env, [(5, 5), (20, 21), (20.5, 20), (22, 20)], health={1: 20.0, 2: 20.0})
    first = play_frames(env, nearer, [STOP], 1)[-1]
    assert np.asarray(first.health[1:3]).tolist() == [20.0, 20.5625]
    assert np.asarray(first.target).tolist()[2] == 1  # whom it heals, of its own


def test_a_medivac_that_is_not_told_to_heals_nobody():
    env, start = medic_stage(health={0: 20.0})
    for action in (STOP, NORTH):
        assert float(play_frames(env, start, [STOP, STOP, action], 4)[-1].health[0]) == 20


def test_a_dead_medivac_heals_nobody():
    env = SMAC(duel("1 marine, 1 medivac", "1 marine"), STILL)
    start = staged(env, [(10, 16), (12, 16), (15, 16)], health={0: 20.0, 1: 5.0}, cooldown={0: 1e6})
    history = play_frames(env, start, [STOP, ATTACK], 8)
    assert lives(history, 1).tolist() == [5.0] + [0.0] * 8  # shot in the first frame
    assert lives(history, 0).tolist() == [20.0] * 9


def test_nobody_but_those_who_can_shoots_at_a_medivac():
    env = SMAC(duel("1 marauder, 1 marine", "1 medivac"), STILL)
    start = staged(env, [(10, 16), (10, 18), (14, 16)])
    after = play_frames(env, start, [ATTACK, ATTACK], 1)[-1]
    assert float(after.health[2]) == 150 - (6 - 1)
    assert float(after.x[0]) == 10  # the marauder's order is refused, so it stands


def test_nobody_fires_at_the_dead():
    env = SMAC(duel("1 marine", "2 marine"), STILL)
    start = staged(env, [(10, 16), (13, 16), (28, 28)], health={1: 0.0}, cooldown={2: 1e6})
    after = play_frames(env, start, [ATTACK], 1)[-1]
    assert float(after.cooldown[0]) == 0
    alive = staged(env, [(10, 16), (13, 16), (28, 28)], cooldown={1: 1e6, 2: 1e6})
    assert float(play_frames(env, alive, [ATTACK], 1)[-1].cooldown[0]) > 0


def test_mutual_kills_happen():
    env = SMAC(duel("1 marine", "1 marine"), STILL)
    start = staged(env, [(10, 16), (15, 16)], health={0: 3.0, 1: 3.0})
    after = play_frames(env, start, [ATTACK], 1)[-1]
    assert (float(after.health[0]), float(after.health[1])) == (0, 0)


def test_the_same_key_gives_the_same_battle():
    env = SMAC("3m")
    one, again, other = (jax.jit(env.reset)(jax.random.key(seed))[0] for seed in (1, 1, 2))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), one, again))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), one, other))  # nobody has fired yet
