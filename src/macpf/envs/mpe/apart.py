"""How well agents can do that do not see each other: teams found by search, without learning.

Such an agent knows where it is, where the landmarks are, and by what strategies the others act; not where
they are. Its best answer is what costs the team least on average over all places where they may have
started. Agents answer each other in turns, from a convention on, until nobody gains much by another answer.
From another convention another team may come, and nothing here says which is the best of all.

Agents do not touch here: who does not see others cannot plan for being pushed. And searches count every
distance in full; what they find is played in the task itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from macpf.envs.mpe.controllers import LookAhead
from macpf.envs.mpe.formation import FormationControl, angles
from macpf.envs.mpe.line import LineControl
from macpf.envs.mpe.physics import DAMPING, DIRECTIONS, DT, PUSH, coasting
from macpf.envs.mpe.world import World
from macpf.types import PRNGKey

N = 3  # agents; the others are two, who can share two places in two ways
POINT = 1e-9  # the radius of agents that do not touch
FIXED = LookAhead(places="own")

# A sequence of actions is judged by what it has cost, and by what it would cost to be where one coasts to
# when the others, in some samples, have come to their ends; that counts so much.
WORTH = 0.5
SOME = 16

Task = LineControl | FormationControl
Paths = Float[Array, "K T 2"]  # where an agent is after each step, from each of K starts
Others = Float[Array, "P 2 2"]  # where the two others are, in P samples
Cost = Callable[[Others, Float[Array, "M 2"]], Float[Array, " M"]]  # of being at a point, mean over samples
Convention = Literal["own", "nearest"]  # agent i takes place i, or everybody the nearest


def without_contacts(env: Task) -> Task:
    return replace(env, radius=POINT)


def returns(
    env: Task, convention: Convention, key: PRNGKey, *, rounds: int, starts: int, beam: int, plays: int
) -> Float[Array, "plays 2"]:
    """The returns of the controller `fixed` and of the team found from a convention, in the same episodes.

    Their landmarks are those of the key, known to all. Answers are found among some starts of the others;
    what is played starts anywhere else.
    """
    env = without_contacts(env)
    world, _ = env.reset(key)
    known_key, plays_key, turns_key, last_key = jax.random.split(key, 4)
    known, played = anywhere(known_key, starts), anywhere(plays_key, plays)
    cost = partial(COSTS[type(env)], env, world)

    def answers(cost: Cost, others: Float[Array, "T P 2 2"], starts: Float[Array, "K 2"]):
        """What to do from each start, and where that leads."""
        return jax.lax.map(lambda start: search(cost, others, start, beam), starts)

    def turn(paths: list[Paths], key: PRNGKey) -> tuple[list[Paths], None]:
        for i, own_key in enumerate(jax.random.split(key, N)):
            _, paths[i] = answers(cost, others_of(i, paths, own_key), known[i])
        return paths, None

    places, nobody = env.own_slots(world), jnp.zeros((env.horizon, 1, N - 1, 2))
    paths = [answers(towards(places, i, convention), nobody, known[i])[1] for i in range(N)]
    paths, _ = jax.lax.scan(turn, paths, jax.random.split(turns_key, rounds))
    last = jax.random.split(last_key, N)
    found = [answers(cost, others_of(i, paths, last[i]), played[i])[0] for i in range(N)]

    def both(starts: Float[Array, "N 2"], actions: Int[Array, "T N"]) -> Float[Array, " 2"]:
        begun = replace(world, position=starts)
        fixed = paid(env, begun, lambda now: FIXED.act(env, now, places, key))
        return jnp.stack([fixed, paid(env, begun, lambda now: actions[now.time])])

    return jax.vmap(both, in_axes=(1, 0))(played, jnp.stack(found, axis=-1))


def anywhere(key: PRNGKey, starts: int) -> Float[Array, "N K 2"]:
    """Where each agent may start."""
    return jax.random.uniform(key, (N, starts, 2), minval=-1.0, maxval=1.0)


def others_of(i: int, paths: Sequence[Paths], key: PRNGKey) -> Float[Array, "T P 2 2"]:
    """Where the others of agent i may be after every step: starts of both, brought together by chance."""
    one, other = (of_one for j, of_one in enumerate(paths) if j != i)
    return jnp.stack([one, jax.random.permutation(key, other)], axis=2).swapaxes(0, 1)


def search(
    cost: Cost, others: Float[Array, "T P 2 2"], start: Float[Array, " 2"], beam: int
) -> tuple[Int[Array, " T"], Float[Array, "T 2"]]:
    """The best actions from a start at rest, and where they lead; `beam` sequences are kept at every step."""
    pushed = jnp.asarray(PUSH * DT * DIRECTIONS)
    worth = WORTH * (np.arange(len(others)) < len(others) - 1)

    def extend(kept, moment):
        x, v, paid = kept
        now, worth = moment
        v = ((1 - DAMPING) * v[:, None] + pushed[None]).reshape(-1, 2)
        x = jnp.repeat(x, len(pushed), axis=0) + DT * v
        paid = jnp.repeat(paid, len(pushed)) + cost(now, x)
        ahead = worth * cost(others[-1, :SOME], x + coasting("velocity-first") * v)
        best = jax.lax.top_k(-(paid + ahead), beam)[1]
        return (x[best], v[best], paid[best]), (x[best], best)

    def back(i, row):
        x, best = row
        return best[i] // len(pushed), (best[i] % len(pushed), x[i])

    one = jnp.where(jnp.arange(beam) == 0, 0.0, jnp.inf)  # all begin alike: one of them is enough
    kept = (jnp.tile(start, (beam, 1)), jnp.zeros((beam, 2)), one)
    (_, _, paid), rows = jax.lax.scan(extend, kept, (others, jnp.asarray(worth, jnp.float32)))
    return jax.lax.scan(back, jnp.argmin(paid), rows, reverse=True)[1]


def paid(env: Task, world: World, act: Callable[[World], Int[Array, " N"]]) -> Float[Array, ""]:
    """The return of an episode that begins like this."""

    def step(world: World, _):
        world, arrived = env.step(world, act(world), jax.random.key(0))  # nothing is left to chance
        return world, arrived.reward

    return jnp.sum(jax.lax.scan(step, world, length=env.horizon)[1])


def towards(places: Float[Array, "N 2"], i: int, convention: Convention) -> Cost:
    """What a convention asks for: the distance of the agent's own place, or of the nearest one."""

    def cost(others: Others, points: Float[Array, "M 2"]) -> Float[Array, " M"]:
        away = [between(points, place[None]) for place in places]
        return away[i] if convention == "own" else least(away)

    return cost


# What it costs the team that an agent is at a point: the best matching, the mean over where the others may be


def cost_on_line(
    env: LineControl, world: World, others: Others, points: Float[Array, "M 2"]
) -> Float[Array, " M"]:
    return jnp.mean(matched(env.slots(world)[None, None], others, points), axis=1)


def cost_on_circle(
    env: FormationControl, world: World, others: Others, points: Float[Array, "M 2"]
) -> Float[Array, " M"]:
    """The first place is at the smallest angle: that of one of the others, or of the point."""
    ring = jax.vmap(partial(env.ring, world.landmarks))
    theirs = jnp.min(angles(others - world.landmarks[None]), axis=1)
    mine = angles(points - world.landmarks)
    led, leading = matched(ring(theirs)[None], others, points), matched(ring(mine)[:, None], others, points)
    return jnp.mean(jnp.where(mine[:, None] < theirs[None], leading, led), axis=1)


def matched(
    places: Float[Array, "#M #P N 2"], others: Others, points: Float[Array, "M 2"]
) -> Float[Array, "M P"]:
    """The cost of the best matching, by point and sample; places may be the same for all of them."""
    each = [places[..., k, :] for k in range(N)]
    one, other = ([between(others[None, :, j], place) for place in each] for j in range(N - 1))
    left = (jnp.minimum(one[a] + other[b], one[b] + other[a]) for a, b in ((1, 2), (2, 0), (0, 1)))
    return least([between(points[:, None], place) + rest for place, rest in zip(each, left, strict=True)])


def between(points: Float[Array, "*#b 2"], others: Float[Array, "*#b 2"]) -> Float[Array, "*b"]:
    """Distances, axis by axis, so that no array holds pairs of numbers."""
    return jnp.sqrt((points[..., 0] - others[..., 0]) ** 2 + (points[..., 1] - others[..., 1]) ** 2)


def least(costs: Sequence[Array]) -> Array:
    return reduce(jnp.minimum, costs)


COSTS: Mapping[type, Callable[[Any, World, Others, Any], Float[Array, " M"]]] = {
    LineControl: cost_on_line,
    FormationControl: cost_on_circle,
}
