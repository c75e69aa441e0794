"""Random legal play on every map, for as long as one likes, and what is the worst that was seen.

`python -m macpf.envs.smac.soak --steps 10000000 --out results/smac-soak` writes soak.json there.
"""

import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import tyro
from jaxtyping import Array, Bool, Float, Int

from macpf.envs.smac.battle import Battle
from macpf.envs.smac.env import SMAC
from macpf.envs.smac.maps import SCENARIOS
from macpf.envs.smac.terrain import BORDER, SIZE, is_open
from macpf.errors import require
from macpf.types import PRNGKey, TimeStep

ROUNDING = 1e-3  # of overlaps


class Worst(NamedTuple):
    """The worst of some steps: counts of what must not be, and how deep units stood in each other."""

    not_finite: Int[Array, ""]
    off_ground: Int[Array, ""]
    above_maximum: Int[Array, ""]
    no_action: Int[Array, ""]
    too_long: Int[Array, ""]
    too_deep: Int[Array, ""]
    overlap: Float[Array, ""]
    overlap_of_teams: Float[Array, ""]
    episodes: Int[Array, ""]
    wins: Int[Array, ""]

    @property
    def faults(self) -> Int[Array, ""]:
        """All that must not be."""
        counts = self.not_finite + self.off_ground + self.above_maximum
        return counts + self.no_action + self.too_long + self.too_deep

    def and_then(self, other: "Worst") -> "Worst":
        """Counts add up, depths do not."""
        deep = ("overlap", "overlap_of_teams")
        pairs = zip(self._fields, self, other, strict=True)
        return Worst(*[jnp.maximum(a, b) if name in deep else a + b for name, a, b in pairs])


def inspect(env: SMAC, battle: Battle, arrived: TimeStep) -> Worst:
    """What is wrong with one battle."""
    field, alive = env.field, battle.alive
    n, x, y = field.n, battle.x, battle.y
    numbers = [
        leaf for leaf in jax.tree.leaves((battle, arrived)) if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in numbers]))
    over = (battle.health > field.health) | (battle.shield > field.shield) | (battle.energy > 200)
    away = jnp.hypot(x[:, None] - x[None], y[:, None] - y[None])
    deep = jnp.where(alive[:, None] & alive[None] & (field.apart > 0), field.apart - away, 0.0)
    going = ~(arrived.terminated | arrived.truncated)
    return Worst(
        not_finite=_count(~finite),
        off_ground=_count(jnp.any(~_stands(env, x, y))),
        above_maximum=_count(jnp.any(over | (battle.health < 0) | (battle.shield < 0))),
        no_action=_count(jnp.any(~jnp.any(arrived.observation.avail, axis=1))),
        too_long=_count(going & (battle.time >= env.scenario.limit)),
        too_deep=_count(jnp.any(deep > field.rules.contact + ROUNDING)),
        overlap=jnp.maximum(jnp.max(deep), 0.0),
        overlap_of_teams=jnp.maximum(jnp.max(deep[:n, n:]), 0.0),
        episodes=_count(~going),
        wins=_count(arrived.won),
    )


def _count(what: Bool[Array, ""]) -> Int[Array, ""]:
    return what.astype(jnp.int32)


def _stands(env: SMAC, x: Float[Array, " U"], y: Float[Array, " U"]) -> Bool[Array, " U"]:
    field = env.field
    low, high = BORDER, SIZE - BORDER
    airborne = (x >= low) & (x < high) & (y >= low) & (y < high)
    walks = jnp.where(field.strides, is_open(field.land.cliff, x, y), is_open(field.land.ground, x, y))
    return jnp.where(field.flies, airborne, walks)


def soak(env: SMAC, key: PRNGKey, steps: int) -> Worst:
    """So many steps of one copy, taken back to its start at every end, with random available actions."""
    start_key, key = jax.random.split(key)
    battle, arrived = start = env.reset(start_key)

    def advance(carry: tuple[Battle, Bool[Array, "N A"], Worst], key: PRNGKey):
        battle, avail, worst = carry
        act_key, step_key = jax.random.split(key)
        actions = jax.random.categorical(act_key, jnp.where(avail, 0.0, -jnp.inf)).astype(jnp.int32)
        battle, arrived = env.step(battle, actions, step_key)
        worst = worst.and_then(inspect(env, battle, arrived))
        over = arrived.terminated | arrived.truncated
        battle, avail = jax.tree.map(
            lambda new, old: jnp.where(over, new, old),
            (start[0], start[1].observation.avail),
            (battle, arrived.observation.avail),
        )
        return (battle, avail, worst), None

    first = inspect(env, battle, arrived)
    carry = (battle, arrived.observation.avail, first)
    (_, _, worst), _ = jax.lax.scan(advance, carry, jax.random.split(key, steps))
    return worst


def worst_of(env: SMAC, key: PRNGKey, copies: int, steps: int) -> Worst:
    """The same of several copies side by side."""
    each = jax.vmap(partial(soak, env, steps=steps))(jax.random.split(key, copies))
    return Worst(*[jnp.max(v) if v.dtype == jnp.float32 else jnp.sum(v) for v in each])


@dataclass(frozen=True)
class Options:
    """How many steps in all (shared evenly among the maps), copies side by side, where to write, which maps.

    What the file there says of other maps is kept.
    """

    steps: int = 10_000_000
    copies: int = 256
    out: Path = Path("results/smac-soak")
    maps: tuple[str, ...] = tuple(SCENARIOS)


def main(options: Options) -> None:
    """Soaks every map and writes what was found."""
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "soak.json"
    found: dict[str, dict[str, float]] = json.loads(file.read_text()) if file.exists() else {}
    faults = 0
    per_copy = -(-options.steps // (len(options.maps) * options.copies))
    for index, name in enumerate(options.maps):
        begun = time.perf_counter()
        run = jax.jit(partial(worst_of, SMAC(name), copies=options.copies, steps=per_copy))
        worst = jax.block_until_ready(run(jax.random.key(index)))
        seconds = time.perf_counter() - begun
        faults += int(worst.faults)
        found[name] = {
            "steps": per_copy * options.copies,
            **{k: v.item() for k, v in worst._asdict().items()},
        }
        print(f"{name:18}{found[name]} {seconds:.0f} s", flush=True)
        file.write_text(json.dumps(found, indent=1) + "\n")
    require(faults == 0, f"what must not be was seen {faults} times")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
