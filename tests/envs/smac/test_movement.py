"""Movement: speeds, walls, the cliff, and room for each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macpf import backend
from macpf.envs.smac import SCENARIOS, SMAC
from macpf.envs.smac.maps import AttackMove
from macpf.envs.smac.movement import make_room, move, pairs
from macpf.envs.smac.terrain import MAPS, heading, is_open, is_open_ground, terrain
from tests.envs.smac.stage import STILL, duel, play_frames, staged, step_of
from tests.helpers import few, quick_jit

STOP, NORTH, SOUTH, EAST, WEST, ATTACK = 1, 2, 3, 4, 5, 6
KEY = jax.random.key(0)


# Speeds


@pytest.mark.parametrize(
    ("unit", "distance"),
    [("marine", 1.125), ("stalker", 1.4766), ("zergling", 1.4766), ("baneling", 1.25), ("zealot", 1.125)],
)
def test_a_step_takes_a_unit_so_far(unit, distance):
    env = SMAC(duel(f"1 {unit}", "1 zealot"), STILL)
    for action, (dx, dy) in {NORTH: (0, 1), SOUTH: (0, -1), EAST: (1, 0), WEST: (-1, 0)}.items():
        after, _ = step_of(env)(staged(env, [(10, 10), (28, 28)]), jnp.asarray([action], jnp.int32), KEY)
        moved = float(after.x[0]) - 10, float(after.y[0]) - 10
        assert moved == pytest.approx((dx * distance, dy * distance), abs=1e-3)


def test_a_fleeing_stalker_outruns_a_zealot_by_a_third_of_a_cell_in_a_step():
    env = SMAC(duel("1 stalker", "1 zealot", order=AttackMove((5.0, 16.0))), STILL)
    start = staged(env, [(12, 16), (14, 16)], aim=[5.0, 16.0])
    after, _ = step_of(env)(start, jnp.asarray([WEST], jnp.int32), KEY)
    gained = float(after.x[1] - after.x[0]) - 2
    assert gained == pytest.approx(0.3516, abs=1e-3)
    assert float(after.shield[0]) == 80


def test_kiting_costs_no_shots():
    """A stalker that runs while its weapon cools down fires as often as one that stands."""
    env = SMAC(duel("1 stalker", "1 zealot"), STILL)

    def damage(actions):
        battle = staged(env, [(16, 10), (10, 10)], cooldown={1: 1e6})
        for action in actions:
            battle, _ = step_of(env)(battle, jnp.asarray([action], jnp.int32), KEY)
        return 150 - float(battle.health[1] + battle.shield[1])

    assert damage([ATTACK, NORTH, SOUTH, ATTACK]) == damage([ATTACK] * 4) == 20


def test_an_attacker_walks_until_it_is_in_reach_and_no_further():
    env = SMAC(duel("1 marine", "1 zealot"), STILL)
    history = play_frames(env, staged(env, [(10, 16), (16, 16)], cooldown={1: 1e6}, target=[-1]), [ATTACK], 4)
    x = [float(battle.x[0]) for battle in history]
    assert x[1] == pytest.approx(
        10.1406, abs=1e-3
    )  # the reach is 5.875, and the zealot stands for want of an order
    away = [float(battle.x[1] - battle.x[0]) for battle in history]
    assert away[-1] <= 5.875


# Walls


@pytest.mark.parametrize("name", MAPS)
def test_nobody_leaves_the_ground(name):
    land = terrain(name)
    ys, xs = np.nonzero(land.ground)
    x, y = jnp.asarray(xs + 0.5), jnp.asarray(ys + 0.5)
    assert bool(is_open_ground(land, x, y).all())
    closed_y, closed_x = np.nonzero(~land.ground)
    assert not bool(is_open_ground(land, jnp.asarray(closed_x + 0.5), jnp.asarray(closed_y + 0.5)).any())
    outside = jnp.asarray([-0.5, 32.5, 16.0, 16.0]), jnp.asarray([16.0, 16.0, -0.5, 32.5])
    assert not bool(is_open_ground(land, *outside).any())


def test_the_printed_grid_of_the_simple_map():
    land = terrain("simple")
    expected = np.zeros((32, 32), bool)
    expected[7:25, 2:30] = True
    assert (land.ground == expected).all()
    assert land.rectangle is not None


def test_a_wall_stops_a_walker_and_lets_it_slide():
    env = SMAC(duel("1 marine", "1 zealot", terrain="corridor"), STILL)
    wall = staged(env, [(12.5, 5.0), (28, 28)])
    after, _ = step_of(env)(wall, jnp.asarray([EAST], jnp.int32), KEY)  # masked, but try it all the same
    assert float(after.x[0]) == 12.5
    battle = staged(env, [(11.95, 5.0), (28, 28)])
    for _ in range(3):
        battle = play_frames(env, battle, [EAST], 8)[-1]
    assert 12.8 < float(battle.x[0]) < 13


@pytest.mark.parametrize("name", ["corridor", "band", "ravine"])
def test_paths_lead_everywhere(name):
    """Following the next corner leads from every open cell to a far one, over open ground only."""
    land = terrain(name)
    assert land.paths is not None
    ys, xs = np.nonzero(land.ground)
    goal = (xs[0] + 0.5, ys[0] + 0.5)
    x, y = jnp.asarray(xs + 0.5), jnp.asarray(ys + 0.5)
    to_x, to_y = jnp.full(x.shape, goal[0]), jnp.full(x.shape, goal[1])
    walk = quick_jit(lambda x, y: _walk(land, x, y, to_x, to_y))
    for _ in range(40):
        x, y = walk(x, y)
        assert bool(is_open(land.ground, x, y).all())
    assert float(jnp.max(jnp.hypot(x - goal[0], y - goal[1]))) < 0.2


def _walk(land, x, y, to_x, to_y):
    for _ in range(10):
        via_x, via_y = heading(land.paths, x, y, to_x, to_y)
        away = jnp.maximum(jnp.hypot(via_x - x, via_y - y), 1e-6)
        step = jnp.minimum(0.18 / away, 1.0)
        new_x = x + step * (via_x - x)
        x = jnp.where(is_open(land.ground, new_x, y), new_x, x)
        new_y = y + step * (via_y - y)
        y = jnp.where(is_open(land.ground, x, new_y), new_y, y)
    return x, y


def test_only_colossi_cross_the_cliff():
    env = SMAC(duel("1 colossus, 1 zealot", "1 zergling", terrain="ravine"), STILL)
    battle = staged(env, [(16, 14.1), (10, 14.1), (28, 6)])
    history = play_frames(env, battle, [SOUTH, SOUTH], 40)
    assert float(history[-1].y[0]) < 10
    assert float(history[-1].y[1]) >= 13


def test_the_mask_asks_the_walkers_grid_about_colossi_too():
    from macpf.envs.smac.observe import available
    from macpf.envs.smac.rules import Interface

    env = SMAC("2c_vs_64zg", STILL)
    places = [(16, 13.5), (10, 14.05), *np.asarray(env.field.start[:, 2:]).T]
    battle = staged(env, places)
    south = np.asarray(available(env.field, env.interface, battle))[:, SOUTH]
    assert south.tolist() == [False, True]
    kind = Interface(colossus_mask="cliff_ok")
    assert np.asarray(available(env.field, kind, battle))[:, SOUTH].tolist() == [True, True]


# Room


def test_a_line_of_zealots_keeps_zerglings_out():
    env = SMAC(duel("5 zealot", "8 zergling", terrain="corridor", order=AttackMove((4.5, 4.5))), STILL)
    wall = [(11.1 + 0.95 * i, 12.6) for i in range(5)]
    pack = [(13.2 + 0.8 * i, 15.0 + 0.9 * j) for j in range(2) for i in range(4)]
    start = staged(env, wall + pack, aim=[4.5, 4.5], cooldown=dict.fromkeys(range(13), 1e6))
    history = play_frames(env, start, [STOP] * 5, 160)
    for battle in history:
        assert np.allclose(battle.x[:5], start.x[:5], atol=1e-6)  # nobody pushes an opponent
        assert np.allclose(battle.y[:5], start.y[:5], atol=1e-6)
        assert float(jnp.min(battle.y[5:])) > 12.6


def test_without_the_wall_they_pass():
    env = SMAC(duel("1 zealot", "8 zergling", terrain="corridor", order=AttackMove((4.5, 4.5))), STILL)
    pack = [(13.2 + 0.8 * i, 15.0 + 0.9 * j) for j in range(2) for i in range(4)]
    start = staged(env, [(28, 28), *pack], aim=[4.5, 4.5])
    assert float(jnp.max(play_frames(env, start, [STOP], 160)[-1].y[1:])) < 8


def test_about_eight_zerglings_bite_one_zealot_at_a_time():
    env = SMAC(duel("1 zealot", "20 zergling"), STILL)
    pack = [(18.0 + 0.8 * (i % 5), 14.5 + 0.8 * (i // 5)) for i in range(20)]
    start = staged(env, [(15, 16), *pack], health={0: 1e5})
    after = play_frames(env, start, [STOP], 120)[-1]
    away = np.hypot(np.asarray(after.x[1:] - after.x[0]), np.asarray(after.y[1:] - after.y[0]))
    assert 6 <= np.sum(away <= 0.976) <= 9


def made_room(env, places, by, fixed=(), dead=()):
    """How far each unit moves along x once all have made room; `by` along x."""
    battle = staged(env, places, health=dict.fromkeys(dead, 0.0))
    step = jnp.asarray(by, jnp.float32), jnp.zeros(len(places))
    held = jnp.asarray([unit in fixed for unit in range(len(places))])
    return np.asarray(make_room(env.field, pairs(env.field, battle), step, held)[0]).tolist()


def test_units_that_stand_do_not_yield_to_opponents_but_movers_do():
    env = SMAC(duel("1 zealot", "1 zergling"), STILL)
    stands, comes = made_room(env, [(10, 16), (10.8, 16)], [0.0, -0.1])
    assert stands == 0
    assert comes == pytest.approx(-0.05, abs=0.01)  # they are 0.75 apart then
    assert made_room(env, [(10, 16), (10.7, 16)], [0.0, 0.0]) == [0, 0]


def test_friends_that_stand_make_room_for_each_other_half_each():
    env = SMAC(duel("2 marine", "1 zealot"), STILL)
    places, still = [(10, 16), (10.6, 16), (25, 25)], [0.0] * 3
    one, other, _ = made_room(env, places, still)
    assert one == pytest.approx(-other)
    assert other - one == pytest.approx(0.15, abs=0.03)
    one, other, _ = made_room(env, places, still, fixed=[0])
    assert one == 0
    assert other == pytest.approx(0.15, abs=0.03)
    assert made_room(env, places, still, dead=[1])[:2] == [0, 0]


def test_who_runs_into_the_back_of_a_friend_waits():
    env = SMAC(duel("2 marine", "1 zealot"), STILL)
    ahead, behind, _ = made_room(env, [(10, 16), (9.2, 16), (25, 25)], [0.05, 0.14, 0.0])
    assert ahead == pytest.approx(0.05, abs=2e-3)
    assert behind == pytest.approx(0.1, abs=0.01)


CROWD = SMAC(duel("3 zealot, 1 stalker", "4 zergling", terrain="corridor"), STILL)
moved = quick_jit(lambda battle, by, fixed: move(CROWD.field, battle, by, fixed)[0])


@few(25)
@given(seed=st.integers(0, 10_000))
def test_nobody_comes_to_stand_in_another(seed):
    """However units are thrown together and wherever they go: not deeper than before, or by 0.05."""
    rng = np.random.default_rng(seed)
    start = staged(CROWD, rng.uniform((11.5, 12), (14, 14.5), (8, 2)).tolist())
    by = tuple(jnp.asarray(rng.uniform(-0.2, 0.2, 8), jnp.float32) for _ in "xy")

    def depth(x, y):
        x, y = np.asarray(x), np.asarray(y)
        return CROWD.field.apart - np.hypot(x[:, None] - x[None], y[:, None] - y[None])

    x, y = moved(start, by, jnp.asarray(rng.random(8) < 0.3))
    assert (depth(x, y) <= np.maximum(depth(start.x, start.y), 0.05) + 1e-3).all()
    was_open = np.asarray(is_open(CROWD.field.land.ground, start.x, start.y))
    assert np.asarray(is_open(CROWD.field.land.ground, x, y))[was_open].all()


@few(10)
@given(seed=st.integers(0, 10_000))
def test_crowds_come_apart(seed):
    """Units thrown into each other, even at one place, are apart after some time."""
    env = SMAC(duel("8 marine", "1 zealot"), STILL)
    rng = np.random.default_rng(seed)
    crowd = [tuple(p) for p in rng.uniform(14, 15.5, (7, 2)).tolist()]
    start = staged(env, [crowd[0], *crowd, (28, 28)])
    after = play_frames(env, start, [STOP] * 8, 40)[-1]
    x, y = np.asarray(after.x[:8]), np.asarray(after.y[:8])
    away = np.hypot(x[:, None] - x[None], y[:, None] - y[None]) + 10 * np.eye(8)
    assert away.min() > 0.75 - 0.02


def test_a_colossus_walks_over_others_and_a_medivac_flies_over_them():
    apart = SMAC("1c3s5z").field.apart
    assert (apart[0, 1:9] == 0).all()
    assert apart[0, 9] == 1.5  # the other colossus
    field = SMAC("MMM").field
    assert (field.apart[9, :9] == 0).all()
    assert field.apart[9, 19] == 1.5
    assert (np.diag(field.apart) == 0).all()


@pytest.mark.parametrize("name", SCENARIOS)
def test_collisions_are_mutual(name):
    apart = SMAC(name).field.apart
    assert (apart == apart.T).all()


def test_who_walks_behind_another_does_not_go_round_it():
    env = SMAC(duel("2 marine", "1 zealot"), STILL)
    start = staged(env, [(10, 16), (10.76, 16), (28, 28)], cooldown={2: 1e6})
    after, _ = step_of(env)(start, jnp.asarray([EAST, EAST], jnp.int32), KEY)
    assert np.asarray(after.y[:2]) == pytest.approx([16, 16], abs=1e-3)
    assert np.asarray(after.x[:2]) == pytest.approx([11.125, 11.885], abs=0.1)


@pytest.mark.parametrize("name", ["MMM2", "2c_vs_64zg", "3s5z"])
def test_a_gpu_moves_units_where_a_cpu_does(name, monkeypatch):
    """Places are computed otherwise there; everybody is in a crowd, some walk, some fight."""
    env = SMAC(name)
    units = len(env.field.kinds)
    place_key, step_key, fixed_key = jax.random.split(KEY, 3)
    places = 16 + jax.random.uniform(place_key, (units, 2), minval=-2.0, maxval=2.0)
    battle = staged(env, np.asarray(places).tolist(), health={0: 0.0})
    by_x, by_y = jax.random.uniform(step_key, (2, units), minval=-0.15, maxval=0.15)
    fixed = jax.random.bernoulli(fixed_key, 0.3, (units,))
    by = jnp.where(fixed, 0.0, by_x), jnp.where(fixed, 0.0, by_y)

    (x, y), turn = move(env.field, battle, by, fixed)
    monkeypatch.setattr(backend, "on_cpu", lambda: False)
    (gpu_x, gpu_y), gpu_turn = move(env.field, battle, by, fixed)

    assert np.asarray(gpu_x) == pytest.approx(np.asarray(x), abs=1e-4)
    assert np.asarray(gpu_y) == pytest.approx(np.asarray(y), abs=1e-4)
    assert (np.asarray(gpu_turn) == np.asarray(turn)).all()
    assert not np.allclose(x, battle.x + by[0], atol=1e-3)  # they had to make room
