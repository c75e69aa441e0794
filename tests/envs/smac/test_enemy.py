"""The opponents' mind: nearest in sight, then the same while in reach; who hits them; their order."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from macpf.envs.smac import SMAC, Rules
from macpf.envs.smac.enemy import call_for_help, choose_targets
from macpf.envs.smac.maps import AttackMove, Hunt
from tests.envs.smac.stage import STILL, duel, play_frames, staged

STOP, ATTACK = 1, 6


def targets(env: SMAC, battle) -> list[int]:
    n, x, y = env.field.n, battle.x, battle.y
    away2 = (x[:n, None] - x[None, n:]) ** 2 + (y[:n, None] - y[None, n:]) ** 2
    return np.asarray(choose_targets(env.field, battle, away2)).tolist()


MARINES = SMAC(duel("3 marine", "1 marine"), STILL)


def test_the_nearest_in_sight_is_attacked():
    assert targets(MARINES, staged(MARINES, [(10, 16), (12, 16), (11, 16), (16, 16)])) == [1]


def test_of_two_equally_near_the_first_is_attacked():
    assert targets(MARINES, staged(MARINES, [(12, 13), (13, 16), (19, 16), (16, 16)])) == [1]


def test_sight_is_the_scan_range_and_both_radii():
    far = [(30, 30), (30, 28), (10.25, 16), (16, 16)]
    assert targets(MARINES, staged(MARINES, far)) == [2]
    assert targets(MARINES, staged(MARINES, [*far[:2], (10.2, 16), (16, 16)])) == [-1]


def test_a_target_is_kept_while_in_reach_and_alive():
    places = [(11, 16), (14, 16), (30, 30), (16, 16)]
    assert targets(MARINES, staged(MARINES, places, target=[0])) == [0]
    assert targets(MARINES, staged(MARINES, places, target=[0], x={0: 10.2})) == [1]
    assert targets(MARINES, staged(MARINES, places, target=[0], health={0: 0.0})) == [1]


def test_the_dead_attack_nobody():
    assert targets(MARINES, staged(MARINES, [(11, 16), (14, 16), (15, 16), (16, 16)], health={3: 0.0})) == [
        -1
    ]


def test_who_hit_it_is_gone_for_within_the_leash_while_it_is_remembered():
    places = [(7, 16), (30, 30), (30, 28), (16, 16)]
    assert targets(MARINES, staged(MARINES, places, foe=[0], alarm=[5])) == [0]
    assert targets(MARINES, staged(MARINES, places, foe=[0], alarm=[0])) == [-1]
    assert targets(MARINES, staged(MARINES, places, foe=[0], alarm=[5], x={0: 3.9})) == [-1]


def test_somebody_in_sight_comes_before_who_hit_it():
    places = [(7, 16), (12, 16), (30, 28), (16, 16)]
    assert targets(MARINES, staged(MARINES, places, foe=[0], alarm=[5])) == [1]


def test_friends_near_who_was_hit_answer_and_do_not_pass_it_on():
    env = SMAC(duel("2 marine", "4 marine"), STILL)
    places = [(7, 16), (7, 18), (16, 16), (19.9, 16), (23.8, 16), (16, 20.1)]
    battle = staged(env, places, foe={0: 1}, alarm={0: 30})
    foe, alarm = call_for_help(env.field, battle, 8)
    assert np.asarray(foe).tolist() == [1, 1, -1, -1]
    assert np.asarray(alarm).tolist() == [30, 24, 0, 0]
    again, _ = call_for_help(env.field, staged(env, places, foe=foe, alarm=alarm), 8)
    assert np.asarray(again).tolist() == [1, 1, -1, -1]


def test_a_hit_is_remembered_for_32_frames():
    env = SMAC(duel("1 stalker", "1 zealot"), STILL)
    history = play_frames(env, staged(env, [(10, 16), (16.9, 16)]), [ATTACK], 40)
    assert int(history[1].foe[0]) == 0
    assert int(history[1].alarm[0]) == 32


@pytest.mark.parametrize(("priority", "chosen"), [("equal", 1), ("top", 2)])
def test_healers_are_ordinary_targets_by_default(priority, chosen):
    env = SMAC(duel("2 marine, 1 medivac", "1 marine"), Rules(healer_priority=priority))
    places = [(12, 16), (13, 16), (12, 18), (16, 16)]
    assert targets(env, staged(env, places)) == [chosen]


def test_walkers_who_cannot_hit_flyers_do_not_try():
    env = SMAC(duel("1 marine, 1 medivac", "1 zealot, 1 marauder"), STILL)
    assert targets(env, staged(env, [(12, 16), (15, 16), (16, 16), (16, 17)])) == [0, 0]


def test_without_a_target_they_walk_to_the_point_of_their_order():
    env = SMAC(duel("1 marine", "1 zealot", order=AttackMove((5.0, 5.0))), STILL)
    after = play_frames(env, staged(env, [(30 - 1, 29), (15, 15)], aim=[5.0, 5.0]), [STOP], 16)[-1]
    assert np.hypot(15 - float(after.x[1]), 15 - float(after.y[1])) == pytest.approx(2.25, abs=1e-3)
    assert float(after.x[1]) == pytest.approx(float(after.y[1]), abs=1e-3)


def test_on_arrival_they_stand():
    env = SMAC(duel("1 marine", "1 zealot", order=AttackMove((5.0, 5.0))), STILL)
    after = play_frames(env, staged(env, [(29, 29), (5.5, 5)], aim=[5.0, 5.0]), [STOP], 20)[-1]
    assert (float(after.x[1]), float(after.y[1])) == pytest.approx((5, 5), abs=1e-4)


def test_without_an_order_they_stay():
    env = SMAC(duel("1 marine", "1 zealot"), STILL)
    after = play_frames(env, staged(env, [(29, 29), (15, 15)]), [STOP], 8)[-1]
    assert (float(after.x[1]), float(after.y[1])) == (15, 15)


def test_hunters_know_where_everybody_is():
    env = SMAC(duel("1 colossus", "1 zergling", order=Hunt()), STILL)
    battle = staged(env, [(29, 29), (3, 3)])
    assert targets(env, battle) == [0]
    assert float(play_frames(env, battle, [STOP], 8)[-1].x[1]) > 3.9


def test_in_smac_only_the_zerglings_of_the_ravine_hunt():
    from macpf.envs.smac import SCENARIOS

    assert [name for name, s in SCENARIOS.items() if isinstance(s.order, Hunt)] == ["2c_vs_64zg"]


def test_a_spine_crawler_never_moves_and_shoots_what_is_within_seven():
    env = SMAC("2s_vs_1sc", STILL)
    battle = staged(env, [(13.92, 11.5), (14.5, 11.5), (13.92, 20.04)])
    assert targets(env, battle) == [-1]  # 8.54 away, its weapon reaches 7 and both radii: 8.5
    near = staged(env, [(13.92, 11.6), (14.5, 11.5), (13.92, 20.04)])
    assert targets(env, near) == [0]
    after = play_frames(env, near, [STOP, STOP], 2)[-1]
    assert float(after.shield[0]) == pytest.approx(80 - 30)
    assert (float(after.x[2]), float(after.y[2])) == (jnp.float32(13.92), jnp.float32(20.04))


def test_their_medivac_follows_its_team_no_faster_than_it():
    env = SMAC(duel("1 marine", "2 marine, 1 medivac", order=AttackMove((5.0, 16.0))), STILL)
    start = staged(env, [(29, 29), (20, 16), (20, 18), (25, 17)], aim=[5.0, 16.0])
    history = play_frames(env, start, [STOP], 60)
    pace = [float(a.x[3] - b.x[3]) for a, b in itertools.pairwise(history)]
    assert max(pace) <= 2.25 / 16 + 1e-5
    assert float(history[-1].x[3]) < 19
    idle = SMAC(env.map, Rules(enemy_medivac="idle", first_frames=0))
    assert float(play_frames(idle, start, [STOP], 20)[-1].x[3]) == 25
