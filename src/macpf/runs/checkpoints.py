"""Checkpoints of the whole training state: written beside training, whole or not at all."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import SingleDeviceSharding

from macpf.errors import UserError
from macpf.training import TrainState

KEPT = 2

logging.getLogger("absl").setLevel(logging.CRITICAL)  # orbax tells of every file it writes


class Checkpoints:
    """The checkpoints of one run, each by the number of epochs done."""

    def __init__(self, path: Path, *, read_only: bool = False):
        self.path = path
        options = ocp.CheckpointManagerOptions(max_to_keep=KEPT, create=not read_only, read_only=read_only)
        with _in_a_sentence("open", path):
            self.manager = ocp.CheckpointManager(path.absolute(), options=options)

    def latest(self) -> int | None:
        """The epochs done at the latest whole checkpoint."""
        return self.manager.latest_step()

    def save(self, epochs: int, state: TrainState) -> None:
        """Copies the state, and writes the copy while training goes on."""
        with _in_a_sentence("write", self.path):
            items = {name: ocp.args.StandardSave(_flat(part)) for name, part in _parts(state).items()}
            self.manager.save(epochs, args=ocp.args.Composite(**items))

    def restore(self, epochs: int, like: TrainState) -> TrainState:
        """The state at that checkpoint; `like` has its structure, shapes and dtypes."""
        found = self._read(epochs, _parts(like))
        replay, key, steps, episodes, updates = found["rest"]
        return TrainState(found["learner"], replay, key, steps, episodes, updates)

    def restore_learner(self, epochs: int, like: Any) -> Any:
        """The learner alone, without the replay."""
        return self._read(epochs, {"learner": like})["learner"]

    def wait(self) -> None:
        """Returns when everything is written."""
        with _in_a_sentence("write", self.path):
            self.manager.wait_until_finished()
            self.manager.check_for_errors()

    def close(self) -> None:
        self.manager.close()

    def _read(self, epochs: int, like: Mapping[str, Any]) -> dict[str, Any]:
        with _in_a_sentence("read", self.path):
            wanted = {name: ocp.args.StandardRestore(_flat_shapes(part)) for name, part in like.items()}
            found = self.manager.restore(epochs, args=ocp.args.Composite(**wanted))
            return {name: _unflat(found[name], part) for name, part in like.items()}


def _parts(state: TrainState) -> dict[str, Any]:
    """What is stored apart, so that a policy can be loaded without a replay of gigabytes."""
    rest = (state.replay, state.key, state.steps, state.episodes, state.updates)
    return {"learner": state.learner, "rest": rest}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _flat(tree: Any) -> dict[str, np.ndarray]:
    """The leaves by number, copied: training overwrites its arrays in place while they are being written."""
    data = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, tree)
    return {f"{i:04}": np.array(leaf, copy=True) for i, leaf in enumerate(jax.tree.leaves(data))}


def _flat_shapes(tree: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes of the same leaves."""
    here = SingleDeviceSharding(jax.devices()[0])
    data = jax.eval_shape(
        lambda tree: jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, tree), tree
    )
    shapes = enumerate(jax.tree.leaves(data))
    return {f"{i:04}": jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here) for i, x in shapes}


def _unflat(leaves: Mapping[str, Any], like: Any) -> Any:
    """The tree of `like` with these leaves."""
    wanted, structure = jax.tree.flatten(like)
    values = [leaves[f"{i:04}"] for i in range(len(wanted))]
    for found, leaf in zip(values, jax.tree.leaves(_flat_shapes(like)), strict=True):
        if (found.shape, found.dtype) != (leaf.shape, leaf.dtype):
            raise ValueError(f"found {found.dtype}{found.shape} where {leaf.dtype}{leaf.shape} belongs")
    keyed = [jax.random.wrap_key_data(v) if _is_key(w) else v for v, w in zip(values, wanted, strict=True)]
    return jax.tree.unflatten(structure, keyed)


@contextmanager
def _in_a_sentence(what: str, path: Path) -> Iterator[None]:
    """Turns whatever goes wrong in reading or writing (a full disk, a damaged file) into one sentence."""
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise UserError(f"cannot {what} the checkpoint in {path}: {first}") from error
