"""Scripted policies, to see how hard a map is: attack, focus fire, kite, take turns, hold a line or a choke.

A policy is a function of the environment, the battle and a key; it knows everything, but acts legally.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from macpf.envs.smac.battle import Battle
from macpf.envs.smac.env import SMAC
from macpf.envs.smac.maps import WEST
from macpf.envs.smac.observe import DIRECTIONS, FIRST_TARGET, NO_OP, NORTH, STOP, available
from macpf.envs.smac.observe import WEST as WESTWARD
from macpf.envs.smac.terrain import SIZE, heading, is_open_ground
from macpf.types import PRNGKey

Scripted = Callable[[SMAC, Battle, PRNGKey], Array]  # every agent's action


class View(NamedTuple):
    """What the policies look at: the mask, squared distances, who can be shot at from here, who is chased."""

    avail: Bool[Array, "N A"]
    away2: Float[Array, "N E"]
    targets: Bool[Array, "N E"]
    in_reach: Bool[Array, "N E"]
    after_me: Bool[Array, "N E"]


def view(env: SMAC, state: Battle) -> View:
    """The present situation; targets are those that the mask offers and the weapon can hit."""
    field, n = env.field, env.field.n
    avail = available(field, env.interface, state)
    x, y = state.x, state.y
    away2 = (x[:n, None] - x[None, n:]) ** 2 + (y[:n, None] - y[None, n:]) ** 2
    away2 = jnp.where(state.alive[None, n:], away2, jnp.inf)
    targets = avail[:, FIRST_TARGET:] & (field.ours.reach2 >= 0)
    after_me = state.target[None] == jnp.arange(n, dtype=jnp.int32)[:, None]
    return View(avail, away2, targets, targets & (away2 <= field.ours.reach2), after_me)


def attack_nearest(env: SMAC, state: Battle, key: PRNGKey) -> Int[Array, " N"]:
    """Everybody attacks the nearest opponent, or walks up to it; a medivac heals the worst wounded."""
    now = view(env, state)
    rank = jnp.where(now.targets, now.away2, jnp.inf)
    return _with_healer(env, state, now, _attack(rank, now, approach(env, state, now)))


def focus_fire(env: SMAC, state: Battle, key: PRNGKey) -> Int[Array, " N"]:
    """Everybody attacks the weakest opponent in reach, or in sight, or walks up to the nearest."""
    now, n = view(env, state), env.field.n
    weak = (state.health + state.shield)[None, n:] + 0.01 * now.away2
    rank = jnp.where(now.in_reach, weak, jnp.where(now.targets, 1e4 + now.away2, jnp.inf))
    return _with_healer(env, state, now, _attack(rank, now, approach(env, state, now)))


def kite(env: SMAC, state: Battle, key: PRNGKey) -> Int[Array, " N"]:
    """Whoever is chased runs while its weapon cools down, or when it is nearly caught; all others shoot."""
    now, n = view(env, state), env.field.n
    shoot, reach = attack_nearest(env, state, key), _their_reach(env)
    caught = jnp.any(now.after_me & (now.away2 < (reach + 1.4) ** 2), axis=1)
    pressed = jnp.any(now.after_me & (now.away2 < (reach + 3.0) ** 2), axis=1)
    waits = state.cooldown[:n] > env.interface.step_mul / 2
    away = flee(env, state, now)
    return jnp.where((caught | (pressed & waits)) & (away > STOP), away, shoot)


def take_turns(env: SMAC, state: Battle, key: PRNGKey) -> Int[Array, " N"]:
    """Of a team, those shoot who are not shot at; whoever is evades, from what can follow or what cannot."""
    evade = _lead_on if env.field.speed[env.field.n :].any() else _relieve
    return evade(env, state, view(env, state), attack_nearest(env, state, key))


def _lead_on(env: SMAC, state: Battle, now: View, shoot: Int[Array, " N"]) -> Int[Array, " N"]:
    """Whoever is chased runs, and shoots only where that leaves a gap, or while their weapons cool down."""
    field, n, frames = env.field, env.field.n, env.interface.step_mul
    gap = jnp.sqrt(now.away2) - _their_reach(env)
    left = jnp.min(jnp.where(now.after_me, gap - frames * field.speed[None, n:], jnp.inf), axis=1)
    safe = jnp.min(jnp.where(now.after_me, state.cooldown[None, n:], jnp.inf), axis=1) > 1.25 * frames
    waits = state.cooldown[:n] > frames / 2
    runs = jnp.any(now.after_me, axis=1) & (waits | ((left < 1.0) & ~safe))
    away = run(env, state, now)
    return jnp.where(runs & (away > STOP), away, shoot)


def _relieve(env: SMAC, state: Battle, now: View, shoot: Int[Array, " N"]) -> Int[Array, " N"]:
    """Whoever is shot at and weak leaves, and comes back when another is; when all are weak they rest."""
    field, n, alive = env.field, env.field.n, state.alive[: env.field.n]
    weak = state.health[:n] + state.shield[:n] <= 1.5 * jnp.max(field.theirs.power, axis=0)
    rested = jnp.all(~alive | (state.shield[:n] >= 0.95 * field.shield[:n]))
    near = jnp.min(jnp.sqrt(now.away2) - _their_reach(env), axis=1) < 0.5
    shot_at = jnp.any(now.after_me, axis=1) & near
    leaves = near & weak & (shot_at | jnp.all(weak | ~alive))
    rests = ~near & ~rested & ~jnp.any(shot_at)
    action = jnp.where(rests, STOP, jnp.where(leaves, flee(env, state, now), shoot))
    return jnp.where(now.avail[:, NO_OP], NO_OP, action).astype(jnp.int32)


def hold_the_line(env: SMAC, state: Battle, key: PRNGKey) -> Int[Array, " N"]:
    """Forms a line north to south and waits; then focuses fire, and who is shot at and weak steps back."""
    now, n = view(env, state), env.field.n
    x, y = state.x[:n], state.y[:n]
    rank = jnp.argsort(jnp.argsort(y + 1e-3 * x))
    dx, dy = WEST[0] - x, WEST[1] + 1.1 * (rank - (n - 1) / 2) - y
    dx, dy = (jnp.where(jnp.abs(d) < 0.57, 0.0, d) for d in (dx, dy))  # half a step is near enough
    shot_at = jnp.any(now.after_me & (now.away2 < 7.0**2), axis=1)
    weak = (state.health[:n] < 16) & shot_at & (state.cooldown[:n] > env.interface.step_mul / 2)
    retreat = weak & now.avail[:, WESTWARD]
    fight = jnp.where(retreat, WESTWARD, focus_fire(env, state, key))
    in_range = jnp.min(now.away2) < env.interface.shoot_range**2
    action = jnp.where(in_range, fight, toward(now.avail, dx, dy))
    return jnp.where(now.avail[:, NO_OP], NO_OP, action).astype(jnp.int32)


POSTS = {
    "corridor": [(11.2 + 0.72 * i, 12.6 - 0.3 * (i % 2)) for i in range(6)],  # a wall across its mouth
    "band": [
        (5.5, 10.5),
        (9.0, 9.0),
        (12.5, 9.5),
        (9.5, 13.5),
        (13.5, 13.0),
        (17.5, 13.5),
        (15.0, 17.5),
    ],  # far apart
}


def hold_the_choke(env: SMAC, state: Battle, key: PRNGKey) -> Int[Array, " N"]:
    """Everybody walks to its post (in a wall, or far from others) and fights there, where a map has posts."""
    now, field, n = view(env, state), env.field, env.field.n
    post_x, post_y = jnp.asarray(POSTS[field.scenario.terrain]).T
    x, y = state.x[:n], state.y[:n]
    goal_x, goal_y = post_x, post_y
    if field.land.paths is not None:
        goal_x, goal_y = heading(field.land.paths, x, y, post_x, post_y)
    near = (jnp.abs(post_x - x) < 0.7) & (jnp.abs(post_y - y) < 0.7)
    walk = jnp.where(near, STOP, toward(now.avail, goal_x - x, goal_y - y))
    beside = now.targets & (now.away2 < 1.5**2)
    rank = jnp.where(beside & near[:, None], now.away2, jnp.inf)
    return _attack(rank, now, walk)


def toward(avail: Bool[Array, "N A"], dx: Float[Array, " N"], dy: Float[Array, " N"]) -> Int[Array, " N"]:
    """The available move that leads furthest in a direction; to stop where none does."""
    gain = dx[:, None] * DIRECTIONS[None, :, 0] + dy[:, None] * DIRECTIONS[None, :, 1]
    gain = jnp.where(avail[:, NORTH:FIRST_TARGET], gain, -jnp.inf)
    move = jnp.where(jnp.max(gain, axis=1) > 0, NORTH + jnp.argmax(gain, axis=1), STOP)
    return jnp.where(avail[:, STOP], move, NO_OP).astype(jnp.int32)


def approach(env: SMAC, state: Battle, now: View) -> Int[Array, " N"]:
    """A step towards the nearest opponent that can be hit, round corners."""
    field, n = env.field, env.field.n
    near = jnp.argmin(jnp.where(field.ours.reach2 >= 0, now.away2, jnp.inf), axis=1)
    x, y = state.x[:n], state.y[:n]
    goal_x, goal_y = state.x[n:][near], state.y[n:][near]
    if field.land.paths is not None and not field.strides[:n].any():
        goal_x, goal_y = heading(field.land.paths, x, y, goal_x, goal_y)
    return toward(now.avail, goal_x - x, goal_y - y)


def flee(env: SMAC, state: Battle, now: View) -> Int[Array, " N"]:
    """The open step after which the nearest opponent is furthest, away from the edge of the map."""
    n = env.field.n
    x, y = (v[:n, None] + 1.5 * DIRECTIONS[None, :, i] for i, v in ((0, state.x), (1, state.y)))
    away = jnp.hypot(x[:, :, None] - state.x[None, None, n:], y[:, :, None] - state.y[None, None, n:])
    nearest = jnp.min(jnp.where(state.alive[None, None, n:], away, jnp.inf), axis=2)
    score = nearest - 0.05 * jnp.hypot(x - SIZE / 2, y - SIZE / 2)
    return _best_move(now.avail, score)


def run(env: SMAC, state: Battle, now: View) -> Int[Array, " N"]:
    """The open step that leads furthest away from the nearest opponent in the long run.

    Who runs straight on from an equally fast pursuer keeps (1 + cosine) / 2 of the distance, where the angle
    is that to the way directly away; a way that soon ends is worth less.
    """
    n, far = env.field.n, 5
    x, y, near = state.x[:n], state.y[:n], jnp.argmin(now.away2, axis=1)
    dx, dy = x - state.x[n:][near], y - state.y[n:][near]
    kept = (
        jnp.hypot(dx, dy)[:, None]
        + dx[:, None] * DIRECTIONS[None, :, 0]
        + dy[:, None] * DIRECTIONS[None, :, 1]
    ) / 2
    cells = jnp.arange(1, far + 1)[:, None, None]
    ahead = [v[None, :, None] + cells * DIRECTIONS[None, None, :, i] for i, v in enumerate((x, y))]
    free = jnp.sum(jnp.cumprod(is_open_ground(env.field.land, *ahead).astype(jnp.float32), axis=0), axis=0)
    return _best_move(now.avail, kept * (1 + free / far))


def _best_move(avail: Bool[Array, "N A"], score: Float[Array, "N 4"]) -> Int[Array, " N"]:
    """The available move of the highest score; to stop where there is none."""
    score = jnp.where(avail[:, NORTH:FIRST_TARGET], score, -jnp.inf)
    move = jnp.where(jnp.any(jnp.isfinite(score), axis=1), NORTH + jnp.argmax(score, axis=1), STOP)
    return jnp.where(avail[:, STOP], move, NO_OP).astype(jnp.int32)


def _their_reach(env: SMAC) -> Float[Array, "N E"]:
    """From how far each opponent hits each agent."""
    return jnp.sqrt(jnp.maximum(env.field.theirs.reach2, 0.0)).T


def _attack(rank: Float[Array, "N E"], now: View, otherwise: Int[Array, " N"]) -> Int[Array, " N"]:
    """Attacks the opponent of least rank that is finite."""
    found = jnp.any(jnp.isfinite(rank), axis=1)
    action = jnp.where(found, FIRST_TARGET + jnp.argmin(rank, axis=1), otherwise)
    return jnp.where(now.avail[:, NO_OP], NO_OP, action).astype(jnp.int32)


def _with_healer(env: SMAC, state: Battle, now: View, actions: Int[Array, " N"]) -> Int[Array, " N"]:
    """The same, but the agents' medivac heals the worst wounded in sight, or goes with the others."""
    field, n, medivac = env.field, env.field.n, env.field.medivac(ally=True)
    if medivac is None:
        return actions
    share = jnp.where(state.alive[:n], state.health[:n] / field.health[:n], 1.0)
    offered = now.avail[medivac, FIRST_TARGET : FIRST_TARGET + n] & (share < 1)
    patient = FIRST_TARGET + jnp.argmin(jnp.where(offered, share, 2.0))
    others = state.alive[:n] & ~jnp.asarray(field.heals[:n])
    count = jnp.maximum(jnp.sum(1.0 * others), 1.0)
    dx, dy = (jnp.sum(jnp.where(others, v[:n], 0.0)) / count - v[medivac] for v in (state.x, state.y))
    along = toward(now.avail[medivac][None], dx[None], dy[None])[0]
    rest = jnp.where(dx**2 + dy**2 > 1, along, jnp.minimum(along, STOP))
    return actions.at[medivac].set(jnp.where(jnp.any(offered), patient, rest).astype(jnp.int32))


SCRIPTS: Mapping[str, Scripted] = {
    "attack nearest": attack_nearest,
    "focus fire": focus_fire,
    "kite": kite,
    "take turns": take_turns,
    "hold the line": hold_the_line,
}


class Results(NamedTuple):
    """What came of some episodes, each an average."""

    won: Float[Array, ""]
    timeout: Float[Array, ""]
    returns: Float[Array, ""]
    length: Float[Array, ""]


def play(env: SMAC, policies: Sequence[Scripted], which: Int[Array, ""], key: PRNGKey) -> Results:
    """One episode of one of the policies."""
    start_key, key = jax.random.split(key)
    state, _ = env.reset(start_key)

    def advance(carry, key):
        state, going, result = carry
        act_key, step_key = jax.random.split(key)
        actions = jnp.stack([policy(env, state, act_key) for policy in policies])[which]
        after, arrived = env.step(state, actions, step_key)
        won, late = (jnp.where(flag, 1.0, 0.0) for flag in (arrived.won, arrived.truncated))
        gain = Results(won, late, arrived.reward, jnp.ones(()))
        result = jax.tree.map(lambda sum, new: sum + jnp.where(going, new, 0.0), result, gain)
        state = jax.tree.map(lambda old, new: jnp.where(going, new, old), state, after)
        return (state, going & ~(arrived.terminated | arrived.truncated), result), None

    carry = (state, jnp.asarray(True), Results(*[jnp.zeros(())] * 4))
    (_, _, result), _ = jax.lax.scan(advance, carry, jax.random.split(key, env.spec.horizon))
    return result


def policies_for(env: SMAC) -> Mapping[str, Scripted]:
    """Those that can be played on a map: that of the posts only where it has some."""
    return {**SCRIPTS, **({"hold the choke": hold_the_choke} if env.scenario.terrain in POSTS else {})}


def results(
    env: SMAC, key: PRNGKey, episodes: int = 128, policies: Mapping[str, Scripted] | None = None
) -> dict[str, Results]:
    """The averages of some episodes of each policy, all played side by side in one program."""
    chosen = policies_for(env) if policies is None else policies
    run = jax.vmap(partial(play, env, tuple(chosen.values())), in_axes=(None, 0))
    run = jax.jit(jax.vmap(run, in_axes=(0, None)))
    means = jax.tree.map(
        lambda v: jnp.mean(v, axis=1), run(jnp.arange(len(chosen)), jax.random.split(key, episodes))
    )
    return {name: jax.tree.map(lambda v, i=i: v[i], means) for i, name in enumerate(chosen)}


def win_rates(
    env: SMAC, key: PRNGKey, episodes: int = 128, policies: Mapping[str, Scripted] | None = None
) -> dict[str, float]:
    """The share of episodes that each scripted policy wins."""
    return {name: float(result.won) for name, result in results(env, key, episodes, policies).items()}
