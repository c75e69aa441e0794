"""What agents see and may do, feature by feature, in situations set up by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from macpf.envs.smac import SMAC, Interface
from macpf.envs.smac.observe import available
from tests.envs.smac.stage import STILL, duel, seen_of, staged

N, S, E, W = 2, 3, 4, 5


def observed(env: SMAC, battle):
    return seen_of(env)(battle).observation


def split(env: SMAC, row, enemy: int, ally: int):
    """An observation as its four parts."""
    n, e = env.field.n, env.field.e
    ends = np.cumsum([4, e * enemy, (n - 1) * ally])
    move, enemies, allies, own = np.split(np.asarray(row), ends)
    return move, enemies.reshape(e, enemy), allies.reshape(n - 1, ally), own


# 3m: agents 0, 1, 2 and opponents 0, 1, 2, all marines, on open ground x 2..29, y 7..24

THREE = SMAC("3m", STILL)
PLACES = [(10, 16), (14, 19), (10, 25 - 1e-3), (16, 16), (19, 16), (10, 10)]


def test_an_observation_of_marines_worked_out_by_hand():
    battle = staged(THREE, PLACES, health={0: 30.0, 1: 9.0, 3: 15.0})
    move, enemies, allies, own = split(THREE, observed(THREE, battle).obs[0], 5, 5)
    assert move.tolist() == [1, 1, 1, 1]
    assert enemies[0].tolist() == pytest.approx(
        [1, 6 / 9, 6 / 9, 0, 15 / 45]
    )  # at exactly 6: can be attacked
    assert enemies[1].tolist() == [0, 0, 0, 0, 0]  # at exactly 9: not seen
    assert enemies[2].tolist() == pytest.approx([1, 6 / 9, 0, -6 / 9, 1])
    assert allies[0].tolist() == pytest.approx([1, 5 / 9, 4 / 9, 3 / 9, 9 / 45])
    assert allies[1].tolist() == pytest.approx([1, 8.999 / 9, 0, 8.999 / 9, 1], abs=1e-4)
    assert own.tolist() == pytest.approx([30 / 45])


def test_just_out_of_range_cannot_be_attacked_and_just_within_sight_is_seen():
    battle = staged(THREE, PLACES, x={3: 16.01, 4: 18.99})
    _, enemies, _, _ = split(THREE, observed(THREE, battle).obs[0], 5, 5)
    assert enemies[0].tolist() == pytest.approx([0, 6.01 / 9, 6.01 / 9, 0, 1], abs=1e-5)
    assert enemies[1].tolist() == pytest.approx([0, 8.99 / 9, 8.99 / 9, 0, 1], abs=1e-5)


def test_the_dead_see_nothing_are_not_seen_and_do_nothing():
    battle = staged(THREE, PLACES, health={0: 0.0, 3: 0.0})
    seen = observed(THREE, battle)
    assert not np.asarray(seen.obs[0]).any()
    assert np.asarray(seen.avail[0]).tolist() == [True] + [False] * 8
    _, enemies, allies, _ = split(THREE, seen.obs[1], 5, 5)
    assert not enemies[0].any()
    assert not allies[0].any()
    assert not np.asarray(seen.avail[1])[6]
    assert not np.asarray(seen.avail[1])[0]
    state = np.asarray(seen.state)
    assert not state[:4].any()
    assert not state[12:15].any()


def test_masks_look_one_cell_ahead():
    battle = staged(THREE, [(2.5, 7.5), (29.5, 24.5), (3.0, 23.99), (16, 16), (19, 16), (10, 10)])
    moves = np.asarray(observed(THREE, battle).avail)[:, N : W + 1]
    assert moves.tolist() == [
        [True, False, True, False],
        [False, True, False, True],
        [True, True, True, True],
    ]
    further = staged(THREE, [(2.99, 8.0), (29.0, 24.0), (3.0, 23.99), (16, 16), (19, 16), (10, 10)])
    moves = np.asarray(observed(THREE, further).avail)[:, N : W + 1]
    assert moves[:2].tolist() == [[True, True, True, False], [False, True, False, True]]


def test_the_mask_at_exactly_six():
    battle = staged(THREE, PLACES)
    assert np.asarray(observed(THREE, battle).avail[0]).tolist() == [False, *[True] * 5, True, False, True]


def test_the_state_of_marines_worked_out_by_hand():
    battle = staged(THREE, PLACES, health={0: 30.0}, cooldown={0: 3.0, 1: -0.5}, actions=[5, 1, 8])
    state = np.asarray(observed(THREE, battle).state)
    allies, enemies, actions = state[:12].reshape(3, 4), state[12:21].reshape(3, 3), state[21:].reshape(3, 9)
    assert allies[0].tolist() == pytest.approx([30 / 45, 3 / 15, (10 - 16) / 32, 0])
    assert allies[1].tolist() == pytest.approx([1, 0, (14 - 16) / 32, (19 - 16) / 32])
    assert enemies[2].tolist() == pytest.approx([1, (10 - 16) / 32, (10 - 16) / 32])
    assert actions.argmax(axis=1).tolist() == [5, 1, 8]
    assert actions.sum() == 3


def test_there_are_no_last_actions_at_the_start():
    assert not np.asarray(observed(THREE, staged(THREE, PLACES)).state)[21:].any()


def test_positions_of_the_state_may_be_divided_by_28():
    env = SMAC("3m", STILL, Interface(max_distance=28.0))
    assert float(observed(env, staged(env, PLACES)).state[2]) == pytest.approx(-6 / 28)


def test_visibility_is_mutual_and_nobody_sees_itself():
    battle = staged(THREE, PLACES, health={2: 0.0})
    matrix = np.asarray(THREE.visibility(battle))
    assert matrix.tolist() == [
        [False, True, False, True, False, True],
        [True, False, False, True, True, False],
        [False] * 6,
    ]
    assert (np.asarray(observed(THREE, battle).visible) == matrix[:, :3]).all()


def test_last_actions_and_time_in_the_observation_when_asked_for():
    env = SMAC(
        "3m", STILL, Interface(obs_last_action=True, obs_timestep_number=True, state_timestep_number=True)
    )
    battle = staged(env, PLACES, actions=[5, 1, 8], time=15)
    row = np.asarray(observed(env, battle).obs[1])
    _, _, allies, own = split(env, row, 5, 14)
    assert allies[0, 5:].tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert allies[1, :5].tolist() == pytest.approx(
        [1, np.hypot(4, 5.999) / 9, -4 / 9, 5.999 / 9, 1], abs=1e-4
    )
    assert allies[1, 5:].argmax() == 8
    assert own.tolist() == [1, 15 / 60]
    assert float(observed(env, battle).state[-1]) == 0.25


# 2s3z: shields and types; agents 0, 1 stalkers, 2-4 zealots; opponents 0, 1 stalkers, 2-4 zealots

MIXED = SMAC("2s3z", STILL)
SPOTS = [(10, 16), (12, 16), (10, 18), (4, 8), (5, 9), (13, 20), (28, 20), (10, 12), (28, 9), (27, 8)]


def test_shields_and_types_are_seen_and_opponents_types_are_numbered_otherwise():
    battle = staged(MIXED, SPOTS, shield={0: 40.0, 2: 25.0, 5: 20.0, 7: 0.0}, health={5: 60.0})
    seen = observed(MIXED, battle)
    _, enemies, allies, own = split(MIXED, seen.obs[0], 8, 8)
    assert enemies[0].tolist() == pytest.approx([1, 5 / 9, 3 / 9, 4 / 9, 60 / 80, 20 / 80, 0, 1])  # a stalker
    assert enemies[2].tolist() == pytest.approx([1, 4 / 9, 0, -4 / 9, 1, 0, 1, 0])  # a zealot
    assert allies[0].tolist() == pytest.approx([1, 2 / 9, 2 / 9, 0, 1, 1, 1, 0])  # a stalker
    assert allies[1].tolist() == pytest.approx([1, 2 / 9, 0, 2 / 9, 1, 25 / 50, 0, 1])  # a zealot
    assert own.tolist() == pytest.approx([1, 0.5, 1, 0])
    rows = np.asarray(seen.state)[: 5 * 7 + 5 * 6]
    assert rows[:7].tolist() == pytest.approx([1, 0, -6 / 32, 0, 0.5, 1, 0])
    assert rows[35:41].tolist() == pytest.approx([60 / 80, -3 / 32, 4 / 32, 20 / 80, 0, 1])


def test_types_can_be_aligned():
    env = SMAC("2s3z", STILL, Interface(align_types=True))
    _, enemies, _, _ = split(env, observed(env, staged(env, SPOTS)).obs[0], 8, 8)
    assert enemies[0, 6:].tolist() == [1, 0]


def test_cooldowns_are_divided_by_smacs_numbers_and_not_clipped():
    battle = staged(MIXED, SPOTS, cooldown={0: 23.0, 2: 19.0})
    state = np.asarray(observed(MIXED, battle).state)
    assert (state[1], state[2 * 7 + 1]) == pytest.approx((23 / 35, 19 / 22))
    env = SMAC(duel("1 colossus", "1 zealot"), STILL)
    state = np.asarray(observed(env, staged(env, [(10, 16), (20, 16)], cooldown={0: 35.2})).state)
    assert state[1] == pytest.approx(35.2 / 24)


# MMM: agents 0, 1 marauders, 2-8 marines, 9 the medivac; opponents 0-6 marines, 7, 8 marauders, 9 the medivac

TEAM = SMAC("MMM", STILL)
CAMP = [(10 + i % 5, 12 + i // 5) for i in range(10)] + [(20 + i % 5, 18 + i // 5) for i in range(10)]


def test_a_medivac_may_heal_the_living_within_six_but_not_itself():
    places = list(CAMP)
    places[9], places[0] = (14, 18), (25, 12)
    battle = staged(TEAM, places, health={3: 0.0, 2: 20.0})
    avail = np.asarray(observed(TEAM, battle).avail[9])
    away = np.hypot(*(np.asarray(places[:10]) - np.asarray((14, 18))).T)
    expected = [j != 3 and j != 9 and away[j] <= 6 for j in range(10)]
    assert avail[6:].tolist() == expected
    assert avail[6 + 4]  # at exactly 6 and in full health, offered all the same
    assert not avail[6]


def test_a_medivac_sees_whom_it_can_heal_in_place_of_whom_it_could_attack():
    """In the row of opponent k stands whether teammate k can be healed: as SMAC has it."""
    places = list(CAMP)
    places[9], places[12] = (13, 16), (14, 16)
    battle = staged(TEAM, places)
    seen = observed(TEAM, battle)
    _, enemies, _, _ = split(TEAM, seen.obs[9], 8, 8)
    assert enemies[2].tolist() == pytest.approx([1, 1 / 9, 1 / 9, 0, 1, 0, 1, 0], abs=1e-5)
    assert enemies[9, 0] == 0


def test_a_medivac_shows_its_energy_in_the_state():
    battle = staged(TEAM, CAMP, energy={9: 120.0})
    row = np.asarray(observed(TEAM, battle).state)[9 * 7 : 10 * 7]
    assert row.tolist() == pytest.approx([1, 120 / 200, (14 - 16) / 32, (13 - 16) / 32, 0, 0, 1])


def test_rows_beyond_the_agents_offer_no_heal_on_mmm2():
    env = SMAC("MMM2", STILL)
    avail = np.asarray(available(env.field, env.interface, staged(env, [*CAMP, (26, 9), (27, 9)])))
    assert avail.shape == (10, 18)
    assert not avail[9, 16:].any()


# Short sight


def test_the_short_sighted_see_six_far_and_no_teammates():
    env = SMAC("8m_vs_9m_myopic", STILL)
    places = [(10 + 0.8 * i, 16) for i in range(8)] + [(10, 22), (10, 21), *[(28, 8 + i) for i in range(7)]]
    seen = observed(env, staged(env, places))
    row = np.asarray(seen.obs[0])
    enemies = row[4:49].reshape(9, 5)
    assert not enemies[0].any()  # at exactly 6: may be attacked, but is not seen
    assert bool(seen.avail[0, 6])
    assert enemies[1].tolist() == pytest.approx([1, 5 / 6, 0, 5 / 6, 1])
    assert row[49:].tolist() == [1]
    assert bool(seen.visible[0, 7])  # at 5.6
    zero = SMAC("8m_vs_9m_myopic", STILL, Interface(hidden_allies="zero"))
    row = np.asarray(observed(zero, staged(zero, places)).obs[0])
    assert not row[49:84].any()
    assert row[84] == 1


def test_the_state_does_not_know_short_sight():
    places = [(10 + 0.8 * i, 16) for i in range(8)] + [(10, 22), (10, 21), *[(28, 8 + i) for i in range(7)]]
    short, far = (SMAC(name, STILL) for name in ("8m_vs_9m_myopic", "8m_vs_9m"))
    assert jnp.array_equal(
        observed(short, staged(short, places)).state, observed(far, staged(far, places)).state
    )
