"""What a user can get wrong, as one sentence."""

import difflib
from collections.abc import Iterable
from typing import Any

from jax.core import Tracer


class UserError(Exception):
    """A mistake that a person can mend; its message is one clear sentence."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Says that `name` is not a known `kind`, and which names are near it."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}."
    return UserError(f"unknown {kind} {name!r}: {hint}")


def require(holds: Any, sentence: str) -> None:
    """Raises the sentence as a `UserError` unless it holds; what is being traced is not judged."""
    if not isinstance(holds, Tracer) and not holds:
        raise UserError(sentence)
