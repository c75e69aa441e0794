"""Checkpoints of the whole training state: written beside training, whole or not at all.

A checkpoint is a folder named by the epochs done, with a file of plain arrays for the learner and one for
the rest (the replay is large, and whoever loads a policy does not want it). It is written under another
name and renamed when everything is on the disk, so that what carries its name is whole. Every array has a
checksum; nothing is pickled.
"""

import os
import shutil
import zipfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from macpf.errors import UserError
from macpf.training import TrainState

KEPT = 2


class Checkpoints:
    """The checkpoints of one run, each by the number of epochs done."""

    def __init__(self, path: Path):
        self.path = path
        self.writer = ThreadPoolExecutor(max_workers=1)
        self.writing: Future[None] | None = None

    def latest(self) -> int | None:
        """The epochs done at the latest whole checkpoint."""
        return max(self._whole(), default=None)

    def save(self, epochs: int, state: TrainState) -> None:
        """Copies the state, and writes the copy while training goes on."""
        self.wait()
        arrays = {name: _flat(part) for name, part in _parts(state).items()}
        self.writing = self.writer.submit(self._write, epochs, arrays)

    def wait(self) -> None:
        """Returns when everything is written."""
        if self.writing is None:
            return
        try:
            self.writing.result()
        except OSError as error:
            reason = error.strerror or error
            raise UserError(
                f"cannot write a checkpoint to {self.path}: {reason}; those before it are whole"
            ) from error
        finally:
            self.writing = None

    def close(self) -> None:
        self.writer.shutdown()

    def restore(self, epochs: int, like: TrainState) -> TrainState:
        """The state at that checkpoint; `like` has its structure, shapes and dtypes."""
        parts = {name: self._read(epochs, name, part) for name, part in _parts(like).items()}
        replay, key, steps, episodes, updates = parts["rest"]
        return TrainState(parts["learner"], replay, key, steps, episodes, updates)

    def restore_learner(self, epochs: int, like: Any) -> Any:
        """The learner alone, without the replay."""
        return self._read(epochs, "learner", like)

    def _whole(self) -> list[int]:
        names = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        return sorted(int(name) for name in names if name.isdigit())

    def _write(self, epochs: int, arrays: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        part = self.path / f"{epochs}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        for name, leaves in arrays.items():
            with (part / f"{name}.npz").open("wb") as file:
                np.savez(file, **leaves)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
        shutil.rmtree(self.path / str(epochs), ignore_errors=True)
        os.replace(part, self.path / str(epochs))
        for old in self._whole()[:-KEPT]:
            shutil.rmtree(self.path / str(old), ignore_errors=True)

    def _read(self, epochs: int, name: str, like: Any) -> Any:
        file = self.path / str(epochs) / f"{name}.npz"
        try:
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as leaves:
                return _unflat(dict(leaves), like)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"the checkpoint {file} is damaged ({first})") from error


def _parts(state: TrainState) -> dict[str, Any]:
    rest = (state.replay, state.key, state.steps, state.episodes, state.updates)
    return {"learner": state.learner, "rest": rest}


def _flat(tree: Any) -> dict[str, np.ndarray]:
    """The leaves by number, copied: training overwrites its arrays in place while they are being written."""
    leaves = jax.tree.leaves(tree)
    return {f"{i:04}": np.array(_data(leaf), copy=True) for i, leaf in enumerate(leaves)}


def _unflat(leaves: Mapping[str, np.ndarray], like: Any) -> Any:
    """The tree of `like` with these leaves."""
    wanted, structure = jax.tree.flatten(like)
    found = [leaves[f"{i:04}"] for i in range(len(wanted))]
    for array, leaf in zip(found, wanted, strict=True):
        shape = jax.eval_shape(_data, leaf)
        if (array.shape, array.dtype) != (shape.shape, shape.dtype):
            raise ValueError(f"found {array.dtype}{array.shape} where {shape.dtype}{shape.shape} belongs")
    arrays = [jnp.asarray(array) for array in found]
    keyed = [jax.random.wrap_key_data(a) if _is_key(w) else a for a, w in zip(arrays, wanted, strict=True)]
    return jax.tree.unflatten(structure, keyed)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _data(leaf: Any) -> Any:
    """The numbers of a leaf; random keys are numbers too."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf
