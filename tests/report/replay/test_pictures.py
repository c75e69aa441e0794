"""What is in the pictures: everybody where the environment says, and what was chosen."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import macpf
from macpf.envs import TASKS
from macpf.envs.mpe.controllers import CONTROLLERS
from macpf.envs.mpe.world import World
from macpf.envs.random_game import RandomGame
from macpf.report.replay import (
    Circle,
    Colour,
    Drawing,
    Family,
    Line,
    Played,
    Rect,
    Shape,
    Text,
    View,
    replay_of_run,
)
from macpf.report.replay.data import replay
from macpf.report.replay.families import FAMILIES, family_of
from macpf.report.replay.record import of_controller
from macpf.report.replay.shapes import AGENTS, DARK, LIGHT
from tests.report.replay.plays import SHORT, game_run, of_game, of_spread, point_run

PARTICLES = [macpf.SimpleSpread(horizon=2), macpf.FormationControl(horizon=2), macpf.LineControl(horizon=2)]
MARKS = (Colour.SOFT, Colour.GOOD, Colour.PAPER)  # rims of places


def discs(shapes: tuple[Shape, ...], colour: Colour) -> list[Circle]:
    return [s for s in shapes if isinstance(s, Circle) and s.fill == colour]


def still(env: macpf.SimpleSpread, position: list[list[float]], landmarks: list[list[float]]) -> Drawing:
    """The picture of one moment of a world that was made by hand."""
    agents, places = jnp.asarray(position), jnp.asarray(landmarks)
    world = World(agents, jnp.zeros_like(agents), places, jnp.zeros((), jnp.int32))
    n = env.n_agents
    return family_of(env).draw(
        env,
        [
            Played(
                jax.tree.map(lambda x: np.asarray(x)[None], world),
                np.zeros((0, n), int),
                np.zeros((0, 2), np.uint32),
                np.zeros(0, np.float32),
                False,
            )
        ],
    )


@pytest.mark.parametrize("env", PARTICLES)
def test_agents_and_places_are_where_the_environment_says(env) -> None:
    plays = of_controller(env, CONTROLLERS["random"], jax.random.key(2), episodes=2)
    drawing = family_of(env).draw(env, plays)
    for played, pictures in zip(plays, drawing.episodes, strict=True):
        slots = [env.slots(jax.tree.map(lambda x, t=t: jnp.asarray(x[t]), played.states)) for t in range(3)]
        assert len(pictures) == played.steps + 1 == 3
        for shapes, agents, places in zip(pictures, played.states.position, slots, strict=True):
            for i, (x, y) in enumerate(agents):
                (disc,) = discs(shapes, AGENTS[i])
                assert_allclose((disc.x, disc.y, disc.r), (x, y, env.radius), rtol=1e-6)
            marks = [(s.x, s.y) for s in shapes if isinstance(s, Circle) and s.stroke in MARKS and s.r < 0.1]
            assert_allclose(sorted(marks), sorted(map(tuple, places.tolist())), atol=1e-5)


def test_paths_grow_and_arrows_show_the_push() -> None:
    plays = of_controller(SHORT, CONTROLLERS["random"], jax.random.key(2), episodes=1)
    (pictures,) = family_of(SHORT).draw(SHORT, plays).episodes
    for t, shapes in enumerate(pictures):
        of_first = [s for s in shapes if isinstance(s, Line) and s.stroke == AGENTS[0]]
        pushed = t > 0 and plays[0].actions[t - 1, 0] > 0
        assert len(of_first) == (t > 0) + 2 * pushed
        if t > 0:
            assert_allclose(of_first[0].points, plays[0].states.position[: t + 1, 0])


def test_covered_landmarks_are_green_and_collisions_red() -> None:
    env = macpf.SimpleSpread()
    places = [[0.0, 0.0], [0.5, 0.5], [-0.5, 0.5]]
    ((shapes,),) = still(env, [[0.02, 0.0], [0.2, 0.0], [-0.9, -0.9]], places).episodes
    assert [(s.x, s.y) for s in discs(shapes, Colour.GOOD)] == [(0.0, 0.0)]
    ringed = [s.x for s in shapes if isinstance(s, Circle) and s.stroke == Colour.BAD]
    assert_allclose(ringed, [0.02, 0.2])


def test_the_view_holds_everybody() -> None:
    drawing = still(macpf.SimpleSpread(), [[3.0, 0.0], [0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0]] * 3)
    assert drawing.view.left + drawing.view.width > 3.0
    assert drawing.view.width == drawing.view.height


def test_the_point_is_where_the_environment_says() -> None:
    for episode in replay_of_run(point_run(), "ind", 2, seed=1).episodes:
        assert len(episode.frames) == 7
        for before, after in zip(episode.frames[:-1], episode.frames[1:], strict=True):
            old, new = discs(before.shapes, Colour.INK)[-1], discs(after.shapes, Colour.INK)[-1]
            steps = {"right": (1, 0), "up": (0, 1), "left": (-1, 0), "down": (0, -1)}
            agreed = len(set(after.actions)) == 1
            dx, dy = steps[after.actions[0]] if agreed else (0, 0)
            assert_allclose((new.x - old.x, new.y - old.y), (dx, dy), atol=1e-5)
            ring = next(s for s in after.shapes if isinstance(s, Circle) and s.stroke)
            assert ring.stroke == (Colour.GOOD if agreed else Colour.BAD)


def test_the_chosen_cell_is_framed_and_counted() -> None:
    shown, payoff = of_game(), macpf.MatrixGame().table
    counts: dict[tuple[int, int], int] = {}
    for number, episode in enumerate(shown.episodes, 1):
        first, last = episode.frames
        i, j = ("ABCD".index(name) for name in last.actions)
        counts[i, j] = counts.get((i, j), 0) + 1
        assert last.reward == payoff[i, j]
        (frame,) = [s for s in last.shapes if isinstance(s, Rect) and s.stroke == Colour.ACCENT]
        assert (round(frame.x - 0.025), round(-frame.y - 0.975)) == (j, i)
        assert not any(isinstance(s, Rect) and s.stroke for s in first.shapes)
        words = {s.text for s in last.shapes if isinstance(s, Text)}
        assert words == {f"{count} of {number}" for count in counts.values()}


@pytest.mark.parametrize("payoff", [(1.0, -2.0), (((1.0, 0.0), (0.0, 2.0)), ((0.0, 1.0), (3.0, 0.0)))])
def test_games_of_any_number_of_agents(payoff: tuple) -> None:
    env = macpf.MatrixGame(payoff)
    joint = np.zeros((1, env.spec.n_agents), int)
    keys = np.zeros((1, 2), np.uint32)
    played = Played((), joint, keys, np.asarray([payoff[0]], np.float32).reshape(-1)[:1], False)
    shown = replay("game", "any", env, family_of(env), [played])
    texts = [s.text for s in shown.backdrop if isinstance(s, Text)]
    assert [f"{x:g}" for x in env.table.reshape(-1)] == [t for t in texts if t[-1].isdigit()]


def test_rewards_add_up_and_actions_have_names() -> None:
    for shown, names in ((of_spread(), {"stay", "left", "right", "down", "up"}), (of_game(), set("ABCD"))):
        for episode in shown.episodes:
            rewards = [frame.reward for frame in episode.frames]
            assert_allclose([frame.total for frame in episode.frames], np.cumsum(rewards), rtol=1e-6)
            assert episode.frames[0].actions == ()
            assert {name for frame in episode.frames for name in frame.actions} <= names


def test_all_tasks_have_a_picture_and_others_say_so() -> None:
    for task in TASKS:
        assert type(macpf.make(task)) in FAMILIES
    with pytest.raises(macpf.UserError, match="no picture of RandomGame, only of MatrixGame, MultiGoal"):
        family_of(RandomGame())
    large = macpf.MatrixGame(tuple(np.zeros((16,) * 4).tolist()))
    with pytest.raises(macpf.UserError, match="a game of 65536 joint actions is too large"):
        family_of(large).draw(large, [])


def test_a_task_of_ones_own_brings_its_family() -> None:
    def draw(env: macpf.MatrixGame, plays: Sequence[Played]) -> Drawing:
        dot = (Circle(0.0, 0.0, 0.1, Colour.AGENT_1),)
        return Drawing(View(-1.0, -1.0, 2.0, 2.0), (), tuple((dot,) * (p.steps + 1) for p in plays))

    shown = replay_of_run(game_run(), "ind", 1, family=Family(lambda env, agent: ["w", "x", "y", "z"], draw))
    assert [frame.shapes for frame in shown.episodes[0].frames] == [
        (Circle(0.0, 0.0, 0.1, Colour.AGENT_1),)
    ] * 2
    assert set(shown.episodes[0].frames[1].actions) <= set("wxyz")


def test_both_themes_know_every_colour() -> None:
    assert set(LIGHT) == set(DARK) == set(Colour)
