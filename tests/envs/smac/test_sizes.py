"""All 25 tasks have SMAC's sizes, and the tables say what SMAC's do."""

from dataclasses import replace

import numpy as np
import pytest

import macpf
from macpf.envs import TASKS
from macpf.envs.smac import LIBERTY, LOTV, SCENARIOS, SMAC, Group, Interface
from macpf.envs.smac.env import most_reward
from macpf.envs.smac.units import FRAMES_PER_SECOND
from macpf.errors import UserError

# map: agents, opponents, actions, observation, state, limit, max_reward
SIZES = {
    "3m": (3, 3, 9, 30, 48, 60, 365),
    "8m": (8, 8, 14, 80, 168, 120, 640),
    "25m": (25, 25, 31, 250, 950, 150, 1575),
    "5m_vs_6m": (5, 6, 12, 55, 98, 70, 530),
    "8m_vs_9m": (8, 9, 15, 85, 179, 120, 695),
    "10m_vs_11m": (10, 11, 17, 105, 243, 150, 805),
    "27m_vs_30m": (27, 30, 36, 285, 1170, 180, 1850),
    "MMM": (10, 10, 16, 160, 290, 150, 1015),
    "MMM2": (10, 12, 18, 176, 322, 180, 1205),
    "2s3z": (5, 5, 11, 80, 120, 120, 1020),
    "3s5z": (8, 8, 14, 128, 216, 150, 1510),
    "3s5z_vs_3s6z": (8, 9, 15, 136, 230, 170, 1670),
    "1c3s5z": (9, 9, 15, 162, 270, 180, 1870),
    "3s_vs_3z": (3, 3, 9, 36, 54, 150, 680),
    "3s_vs_4z": (3, 4, 10, 42, 61, 200, 840),
    "3s_vs_5z": (3, 5, 11, 48, 68, 250, 1000),
    "6h_vs_8z": (6, 8, 14, 78, 140, 150, 1480),
    "corridor": (6, 24, 30, 156, 282, 400, 1280),
    "so_many_baneling": (7, 32, 38, 202, 397, 100, 1480),
    "2c_vs_64zg": (2, 64, 70, 332, 342, 400, 3080),
    "bane_vs_bane": (24, 24, 30, 336, 984, 200, 1260),
    "2m_vs_1z": (2, 1, 7, 16, 26, 150, 360),
    "2s_vs_1sc": (2, 1, 7, 17, 27, 300, 510),
    "8m_vs_9m_myopic": (8, 9, 15, 50, 179, 120, 695),
    "10m_vs_11m_myopic": (10, 11, 17, 60, 243, 150, 805),
}


def test_the_table_holds_every_map():
    assert set(SIZES) == set(SCENARIOS)
    assert {f"smac/{name}" for name in SIZES} <= set(TASKS)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_smac(name):
    n, e, actions, obs, state, limit, reward = SIZES[name]
    env = macpf.make(f"smac/{name}")
    spec = env.spec
    assert isinstance(env, SMAC)
    assert (env.field.n, env.field.e) == (n, e)
    sizes = (spec.n_agents, spec.n_actions, spec.obs_dim, spec.state_dim, spec.horizon)
    assert sizes == (n, actions, obs, state, limit)
    assert most_reward(env.field, env.interface) == reward


@pytest.mark.parametrize(("name", "size"), [("8m_vs_9m_myopic", 85), ("10m_vs_11m_myopic", 105)])
def test_hidden_teammates_may_be_zeros(name, size):
    assert SMAC(name, interface=Interface(hidden_allies="zero")).spec.obs_dim == size


def test_optional_features_have_their_sizes():
    interface = Interface(obs_last_action=True, obs_timestep_number=True, state_timestep_number=True)
    spec = SMAC("3m", interface=interface).spec
    assert (spec.obs_dim, spec.state_dim) == (30 + 2 * 9 + 1, 48 + 1)
    assert SMAC("3m", interface=Interface(state_last_action=False)).spec.state_dim == 48 - 27


def test_units_are_those_of_the_liberty_mod():
    speed = {name: round(unit.speed / FRAMES_PER_SECOND * 8, 3) for name, unit in LIBERTY.items()}
    assert speed["marine"] == 1.125
    assert speed["stalker"] == 1.477
    assert speed["baneling"] == 1.25
    assert LIBERTY["marauder"].damage_to(LIBERTY["stalker"]) == 20
    assert LIBERTY["marauder"].damage_to(LIBERTY["medivac"]) == 0
    assert LIBERTY["marine"].damage_to(LIBERTY["medivac"]) == 6
    assert LIBERTY["baneling"].damage_to(LIBERTY["zealot"]) == 35
    assert LIBERTY["stalker"].damage_to(LIBERTY["stalker"]) == 14
    assert LOTV["stalker"].damage_to(LIBERTY["stalker"]) == 18
    assert all(unit.period * FRAMES_PER_SECOND - 1 > 8 for unit in LIBERTY.values() if unit.hits)


def test_weapons_reach_as_far_as_their_range_and_both_radii():
    def reach(ally: str, enemy: str, name: str) -> float:
        field = SMAC(name).field
        kinds = [unit.name for unit in field.kinds]
        i, k = kinds.index(ally), kinds[field.n :].index(enemy)
        return float(np.sqrt(field.ours.reach2[i, k]))

    assert reach("marine", "marine", "8m") == pytest.approx(5.75)
    assert reach("hydralisk", "zealot", "6h_vs_8z") == pytest.approx(6.125)
    assert reach("stalker", "zealot", "3s_vs_3z") == pytest.approx(7.125)
    assert reach("marauder", "marine", "MMM") == pytest.approx(6.9375)
    assert reach("zealot", "zealot", "3s5z") == pytest.approx(1.1)
    field = SMAC("MMM").field
    assert field.ours.reach2[0, 9] < 0  # a marauder cannot shoot at the medivac


def test_an_unknown_map_is_told():
    with pytest.raises(UserError, match="did you mean"):
        SMAC("8m_vs_99m")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"allies": (Group("marin", 3, (9.0, 16.0)),)}, "did you mean marine"),
        ({"allies": ()}, "both teams need units"),
        ({"enemies": (Group("medivac", 2, (9.0, 16.0)),)}, "one medivac at most, not 2"),
        ({"terrain": "simpel"}, "did you mean simple"),
        ({"limit": 0}, "at least one step, not 0"),
        ({"enemy_kinds": ("marine",)}, "as many enemy_kinds as kinds"),
        (
            {"allies": tuple(Group(unit, 1, (9.0, 16.0)) for unit in ("marine", "zealot", "marine"))},
            "must follow each other",
        ),
    ],
)
def test_what_is_wrong_with_a_scenario_is_told(change, sentence):
    with pytest.raises(UserError, match=sentence):
        SMAC(replace(SCENARIOS["3m"], **change))


@pytest.mark.parametrize("name", SCENARIOS)
def test_everybody_starts_on_open_ground_and_apart(name):
    field = SMAC(name).field
    x, y = field.start
    assert field.land.ground[y.astype(int), x.astype(int)].all()
    away = np.hypot(x[:, None] - x[None], y[:, None] - y[None])
    assert (away >= field.apart - 1e-4).all()


@pytest.mark.parametrize("name", ["8m", "MMM", "3s5z", "1c3s5z", "bane_vs_bane"])
def test_agents_are_numbered_by_kind_then_west_to_east_then_south_to_north(name):
    field = SMAC(name).field
    order = [
        field.scenario.kinds.index(u.name) if field.scenario.kinds else 0 for u in field.kinds[: field.n]
    ]
    keys = [(kind, *map(float, place)) for kind, place in zip(order, field.start.T, strict=False)]
    assert keys == sorted(keys)
