"""The reward, the end of an episode, illegal actions, orders, starts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from macpf.envs.smac import SMAC, Interface, Rules
from macpf.envs.smac.env import orders_of, outcome, reward
from tests.envs.smac.stage import STILL, duel, staged, step_of, with_health

KEY = jax.random.key(0)
STOP, ATTACK = 1, 6
THREE = SMAC("3m", STILL)
SCALE = 365 / 20


def paid(env: SMAC, before, after) -> float:
    return float(reward(env.field, env.interface, before, after))


def start(env: SMAC):
    return staged(env, env.field.start.T.tolist())


# Reward


def test_damage_pays_and_overkill_does_not():
    before = start(THREE)
    assert paid(THREE, before, with_health(before, {3: 39.0})) == pytest.approx(6 / SCALE)
    assert paid(THREE, before, with_health(before, {3: 0.0})) == pytest.approx((45 + 10) / SCALE)


def test_a_death_is_counted_once():
    dead = with_health(start(THREE), {3: 0.0})
    assert paid(THREE, dead, dead) == 0


def test_own_losses_cost_nothing_unless_asked():
    before = start(THREE)
    after = with_health(before, {0: 0.0, 1: 40.0, 3: 39.0})
    assert paid(THREE, before, after) == pytest.approx(6 / SCALE)
    env = SMAC("3m", STILL, Interface(reward_only_positive=False))
    assert paid(env, before, after) == pytest.approx((6 - 0.5 * (45 + 5) - 0.5 * 10) / SCALE)


def test_regenerating_shields_pay_by_smacs_absolute_value():
    env = SMAC("3s_vs_3z", STILL)
    before = staged(env, env.field.start.T.tolist(), shield={3: 10.0, 4: 40.0})
    after = staged(env, env.field.start.T.tolist(), shield={3: 11.0, 4: 40.0})
    assert paid(env, before, after) == pytest.approx(1 / 34)
    assert paid(SMAC("3s_vs_3z", STILL, Interface(reward_clip="max0")), before, after) == 0
    both = staged(env, env.field.start.T.tolist(), shield={3: 11.0, 4: 30.0})
    assert paid(env, before, both) == pytest.approx(9 / 34)


def test_victory_pays_200_and_defeat_nothing():
    before = with_health(start(THREE), {3: 0.0, 4: 0.0, 5: 5.0})
    assert paid(THREE, before, with_health(before, {5: 0.0})) == pytest.approx((5 + 10 + 200) / SCALE)
    almost = with_health(start(THREE), {0: 0.0, 1: 0.0, 2: 5.0})
    assert paid(THREE, almost, with_health(almost, {2: 0.0})) == 0


def test_sparse_rewards():
    env = SMAC("3m", STILL, Interface(reward_sparse=True, reward_scale=False))
    before = with_health(start(env), {3: 0.0, 4: 0.0, 2: 5.0, 0: 0.0})
    won, lost = with_health(before, {5: 0.0}), with_health(before, {1: 0.0, 2: 0.0})
    assert (paid(env, before, won), paid(env, before, lost), paid(env, before, before)) == (1, -1, 0)


def test_a_clean_win_returns_20():
    """One marine on another that cannot shoot: 45 + 10 + 200 of 255."""
    env = SMAC(duel("1 marine", "1 marine"))
    battle, total, won = staged(env, [(10, 16), (15, 16)], cooldown={1: 1e6}), 0.0, False
    for key in jax.random.split(KEY, 20):
        battle, arrived = step_of(env)(battle, jnp.asarray([ATTACK], jnp.int32), key)
        total += float(arrived.reward)
        if won := bool(arrived.won):
            break
    assert won
    assert total == pytest.approx(20, abs=1e-4)


# The end


def flags(env: SMAC, battle) -> tuple[bool, bool, bool]:
    how = outcome(env.field, battle)
    return bool(how.won), bool(how.lost), bool(how.draw)


def test_who_has_won():
    ours, theirs = dict.fromkeys(range(3), 0.0), dict.fromkeys(range(3, 6), 0.0)
    battle = start(THREE)
    assert flags(THREE, battle) == (False, False, False)
    assert flags(THREE, with_health(battle, theirs)) == (True, False, False)
    assert flags(THREE, with_health(battle, ours)) == (False, True, False)
    assert flags(THREE, with_health(battle, {**ours, **theirs})) == (False, False, True)


def test_a_medivac_alone_has_lost():
    env = SMAC("MMM", STILL)
    battle = start(env)
    ours, theirs = dict.fromkeys(range(9), 0.0), dict.fromkeys(range(10, 19), 0.0)
    assert flags(env, with_health(battle, theirs)) == (True, False, False)
    assert flags(env, with_health(battle, {19: 0.0})) == (False, False, False)
    assert flags(env, with_health(battle, ours)) == (False, True, False)
    assert flags(env, with_health(battle, dict.fromkeys(range(20), 0.0))) == (False, True, False)
    assert flags(env, with_health(battle, {**ours, **theirs})) == (False, True, False)


def test_a_win_with_their_medivac_left_returns_16_point_8():
    env = SMAC("MMM", STILL)
    before = start(env)
    after = with_health(before, dict.fromkeys(range(10, 19), 0.0))
    assert paid(env, before, after) == pytest.approx(20 * (1015 - 160) / 1015)


def test_a_timeout_ends_the_episode_and_is_told():
    for continuing in (False, True):
        env = SMAC("3m", STILL, Interface(continuing_episode=continuing))
        late = staged(env, env.field.start.T.tolist(), time=59)
        after, arrived = step_of(env)(late, jnp.full(3, STOP, jnp.int32), KEY)
        assert bool(arrived.truncated)
        assert bool(arrived.terminated) is not continuing
        assert not bool(arrived.won)
        assert float(arrived.reward) == 0
        assert bool(env.info(after).timeout)
        early = staged(env, env.field.start.T.tolist(), time=58)
        _, arrived = step_of(env)(early, jnp.full(3, STOP, jnp.int32), KEY)
        assert not bool(arrived.truncated | arrived.terminated)


def test_a_battle_decided_in_the_last_step_is_no_timeout():
    last = with_health(
        staged(THREE, [(10, 16), (10, 18), (10, 14), (15, 16), (27, 9), (28, 9)], time=59), {3: 3.0}
    )
    last = with_health(last, {4: 0.0, 5: 0.0})
    after, arrived = step_of(THREE)(last, jnp.asarray([ATTACK, STOP, STOP], jnp.int32), KEY)
    assert bool(arrived.won & arrived.terminated)
    assert not bool(arrived.truncated)
    info = THREE.info(after)
    assert (bool(info.battle_won), int(info.dead_allies), int(info.dead_enemies)) == (True, 0, 3)


# Actions


def test_what_is_not_available_becomes_stop_or_nothing():
    battle = with_health(start(THREE), {2: 0.0})
    done = THREE.legal(battle, jnp.asarray([ATTACK, 99, ATTACK], jnp.int32))
    assert np.asarray(done).tolist() == [STOP, STOP, 0]
    after, _ = step_of(THREE)(battle, jnp.asarray([0, 2, 2], jnp.int32), KEY)
    assert np.asarray(after.actions).tolist() == [STOP, 2, 0]


def test_orders_say_what_actions_mean():
    env = SMAC("MMM", STILL)
    battle = start(env)
    orders = orders_of(
        env.field, env.interface, battle, jnp.asarray([2, 3, 4, 5, 6, 15, 1, 0, -1, 8], jnp.int32)
    )
    assert np.asarray(orders.moves).tolist() == [True] * 4 + [False] * 6
    off = np.stack([orders.goal_x - battle.x[:10], orders.goal_y - battle.y[:10]])[:, :4]
    assert off.round(4).tolist() == [[0, 0, 2, -2], [2, -2, 0, 0]]
    assert [max(t, -1) for t in np.asarray(orders.target).tolist()] == [-1] * 4 + [0, 9] + [-1] * 4
    assert [max(t, -1) for t in np.asarray(orders.heal).tolist()] == [-1] * 9 + [2]


def test_agents_stand_when_their_target_dies():
    env = SMAC(duel("1 marine", "2 marine"), STILL)
    battle = staged(env, [(10, 16), (15, 16), (15, 17)], health={1: 3.0}, cooldown={1: 1e6, 2: 1e6})
    after, _ = step_of(env)(battle, jnp.asarray([ATTACK], jnp.int32), KEY)
    assert (float(after.x[0]), float(after.health[2])) == (10, 45)


# Starts


def test_starts_are_the_same_without_jitter_and_sorted_with_it():
    env = SMAC("8m")
    one, other = (jax.jit(env.reset)(jax.random.key(seed))[0] for seed in (0, 1))
    assert jnp.array_equal(one.x, other.x)
    free = SMAC("8m", Rules(spawn_jitter=0.1, first_frames=0))
    reset = jax.jit(free.reset)
    places = []
    for seed in range(5):
        x, _y = (np.asarray(v) for v in (reset(jax.random.key(seed))[0].x, reset(jax.random.key(seed))[0].y))
        assert (np.diff(x[:8]) >= 0).all()
        assert np.abs(np.sort(x) - np.sort(free.field.start[0])).max() <= 0.1 + 1e-5
        places.append(x)
    assert not np.allclose(places[0], places[1])


def test_the_aim_between_two_points_is_drawn_anew():
    env = SMAC("2m_vs_1z")
    aims = [np.asarray(jax.jit(env.reset)(jax.random.key(seed))[0].aim) for seed in range(4)]
    assert all(13 <= x <= 19 and y == 12 for x, y in aims)
    assert len({float(x) for x, _ in aims}) == 4


def test_opponents_are_under_way_at_the_first_observation():
    battle, arrived = jax.jit(SMAC("8m").reset)(KEY)
    field = SMAC("8m").field
    first = np.max(field.start[0, 8:] - np.asarray(battle.x[8:]))  # who walks behind others starts slower
    assert first == pytest.approx(2.25 / 16, abs=0.02)
    assert jnp.array_equal(battle.x[:8], field.start[0, :8])
    assert not bool(arrived.terminated)
    assert int(battle.time) == 0
