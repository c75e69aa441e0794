"""Pictures of SMAC, of a battle staged by hand: who is where, how they fare, and what happens."""

import io
from dataclasses import replace

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image, ImageSequence

from macpf.envs.controllers import controllers_of
from macpf.envs.smac import LIBERTY, SCENARIOS, SMAC
from macpf.envs.smac.combat import BEAM_LENGTH, ENERGY_MOST
from macpf.envs.smac.field import BLAST_RADIUS
from macpf.report.replay.battle import courses
from macpf.report.replay.data import replay
from macpf.report.replay.figures import OUTLINES, levels
from macpf.report.replay.gif import STEP_MS, to_gif
from macpf.report.replay.page import to_html
from macpf.report.replay.record import of_controller
from macpf.report.replay.shapes import Circle, Colour, Flash, Line, Plain, Sprite, Text
from macpf.report.replay.smac import BATTLE
from tests.report.replay import plays
from tests.report.replay.plays import BANELING, COLOSSUS, ENEMY, MARINE, MEDIVAC, PLACES, STAGE, WOUNDED
from tests.report.replay.test_files import Scripts


def flashes(t: int) -> list[Plain]:
    return [s.shape for s in plays.of_battle().episodes[0].frames[t].shapes if isinstance(s, Flash)]


def sprites(t: int) -> dict[int, Sprite]:
    """The living by their index, as the figures begin with them."""
    shapes = plays.of_battle().episodes[0].frames[t].shapes
    units = len(STAGE.field.kinds)
    return {s.figure: s for s in shapes if isinstance(s, Sprite) and s.figure < units}


def lines(t: int, colour: Colour) -> list[np.ndarray]:
    return [np.asarray(s.points) for s in flashes(t) if isinstance(s, Line) and s.stroke == colour]


def test_steps_looked_at_again_are_the_same() -> None:
    env = SMAC(replace(SCENARIOS["3m"], limit=12))
    episodes = of_controller(env, controllers_of(env)["focus-fire"], jax.random.key(0), episodes=2)
    fired = 0
    for played, steps in zip(episodes, courses(env, episodes), strict=True):
        for t, step in enumerate(steps):
            assert step.frames == 8
            fired += np.sum(step.shot >= 0)
            for row, state in ((0, t), (-1, t + 1)):
                for name in ("x", "y", "health", "cooldown", "target"):
                    found, wanted = getattr(step.states, name), getattr(played.states, name)
                    assert_allclose(found[row], wanted[state], atol=1e-4, err_msg=name)
    assert fired > 10
    shown = replay("smac/3m", "focus-fire", env, BATTLE, episodes)
    assert [len(e.frames) for e in shown.episodes] == [played.steps + 1 for played in episodes]


def test_shots_go_from_who_fires_to_its_target() -> None:
    (ours,), (theirs,) = lines(1, Colour.ALLY), lines(1, Colour.ENEMY)
    for line, start, end in ((ours, MARINE, ENEMY), (theirs, ENEMY, MARINE)):
        assert_allclose(line[1], PLACES[end])
        assert line[0][1] == PLACES[start][1]
        assert abs(line[0][0] - PLACES[start][0]) < STAGE.field.radius[start]


def test_a_beam_lies_across_the_line_of_fire() -> None:
    shot, beam = lines(1, Colour.ACCENT)
    assert_allclose(shot, [PLACES[COLOSSUS], (11.0, 26.0)])
    assert_allclose(sorted(beam.tolist()), [(11.0, 26.0 - BEAM_LENGTH), (11.0, 26.0 + BEAM_LENGTH)])


def test_a_baneling_explodes_once_and_is_gone() -> None:
    blasts = [[s for s in flashes(t) if isinstance(s, Circle) and s.r == BLAST_RADIUS] for t in (1, 2)]
    assert [(s.x, s.y) for s in blasts[0]] == [PLACES[BANELING]]
    assert blasts[1] == []
    assert sprites(1)[BANELING].until == 1 / 8
    assert BANELING not in sprites(2)


def test_a_medivac_heals_its_patient() -> None:
    for t in (1, 2):
        (line,) = lines(t, Colour.GOOD)
        assert_allclose(line, [PLACES[MEDIVAC], PLACES[WOUNDED]], atol=1e-3)


def test_the_fallen_are_marked_where_they_fell() -> None:
    shapes, units = plays.of_battle().episodes[0].frames[2].shapes, len(STAGE.field.kinds)
    marks = {s.figure - units: s.moments for s in shapes if isinstance(s, Sprite) and s.figure >= units}
    assert_allclose(marks[0], [PLACES[BANELING]], atol=1e-3)
    assert_allclose(marks[1], [PLACES[ENEMY]], atol=1e-3)
    score = [s.text for s in shapes if isinstance(s, Text)]
    assert score == [":", "4", "3"]


def test_places_and_bars_are_the_environments() -> None:
    states, field = plays.battle().states, STAGE.field
    for t in range(3):
        alive = {u for u, sprite in sprites(t).items() if sprite.until is None}
        assert alive == set(np.flatnonzero(states.health[t] > 0).tolist())
        for u in alive:
            x, y, health, *second = sprites(t)[u].moments[-1]
            assert_allclose((x, y), (states.x[t, u], states.y[t, u]), atol=1e-4)
            assert_allclose(health, states.health[t, u] / field.health[u], atol=1e-5)
            shield = [states.shield[t, u] / field.shield[u]] if field.shield[u] else []
            energy = [states.energy[t, u] / ENERGY_MOST] if field.heals[u] else []
            assert_allclose(second, shield + energy, atol=1e-5)


def test_a_bar_is_never_less_than_empty() -> None:
    assert levels(LIBERTY["medivac"], 150.0, 0.0, -1e-6) == (1.0, 0.0)


def test_agents_and_actions_are_called_by_kind_and_number() -> None:
    shown = plays.of_battle()
    names = [agent.name for agent in shown.agents]
    assert names == ["colossus 1", "marine 1", "marine 2", "medivac 1", "baneling 1"]
    chosen = ("attack zealot 2", "attack marine 1", "stop", "heal marine 2", "attack zealot 1")
    assert shown.episodes[0].frames[1].actions == chosen
    assert shown.episodes[0].outcome == "out of time"
    assert BATTLE.actions(SMAC("2s_vs_1sc"), 0)[-1] == "attack spine crawler 1"


def test_every_kind_of_unit_has_a_shape_of_its_own() -> None:
    kinds = {g.unit for s in SCENARIOS.values() for g in (*s.allies, *s.enemies)}
    assert kinds - OUTLINES.keys() == {"marine"}
    assert len(set(OUTLINES.values())) == len(OUTLINES)


def test_the_page_is_small_and_needs_nothing_else() -> None:
    page = to_html(plays.of_battle())
    assert Scripts(page).elsewhere == []
    assert len(page) < 60_000


def test_the_gif_shows_steps_on_their_way() -> None:
    with Image.open(io.BytesIO(to_gif(plays.of_battle(), size=240))) as gif:
        times = [frame.info["duration"] for frame in ImageSequence.Iterator(gif)]
    assert len(times) == 1 + 2 * 3 + 1
    assert times[0] == STEP_MS


@pytest.mark.parametrize(("name", "more"), [("3m", False), ("corridor", True)])
def test_scripts_are_controllers(name: str, more: bool) -> None:
    known = controllers_of(SMAC(name))
    assert {"attack-nearest", "focus-fire", "kite", "hold-the-line"} <= known.keys()
    assert ("hold-the-choke" in known) == more
