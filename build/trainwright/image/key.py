"""Compute the input key of an image, and decide what to do with the image."""

from collections.abc import Mapping, Sequence

import deflate

from trainwright.lock.lockfile import digest
from trainwright.matrix.model import Action
from trainwright.matrix.records import PlanEntry

SCHEMA = 1  # raise it by hand when the same inputs start to mean another image
PACKING = (
    1  # raise it by hand when docker/layers.py or docker/canonical.py start to write the same files as other bytes
)


def input_key(rendered: Mapping[str, str], files: Mapping[str, str], distribution: str, parent: str = "") -> str:
    """Return the sha256 (hex) over all inputs and the packer, without time, host, user or mirror.

    `rendered` maps path to text, `files` maps path to sha256 (and mode), `distribution` is the digest of the package
    manifest, `parent` the key of the image this one starts from.
    """
    return digest([SCHEMA, packer(), dict(rendered), dict(files), distribution, parent])


def packer() -> str:
    """Return what determines the bytes of a layer besides its files: the writing format and the compressor."""
    return f"{PACKING}-deflate-{deflate.__version__}"


NOWHERE = "neither the engine nor the registry holds it"


def decide(
    identity: str,
    key: str,
    published: str | None,
    present: bool | None,
    warnings: Sequence[str] = (),
    blocked: Sequence[str] = (),
) -> PlanEntry:
    """Decide what to do with one image.

    An image with `blocked` facts, which could not be established, is neither built nor published. `published` is the
    digest behind the key's tag, "" if it is not published, None if no registry answered; `present` states whether the
    engine holds the image, None if no engine answered.
    """
    action: Action
    if blocked:
        action, reason = "blocked", "; ".join(blocked)
    elif published:
        action, reason = "skip", f"published with this key as {published}"
    elif present:
        action, reason = "reuse", "built with this key already; " + _of_registry(published)
    else:
        unknown = "engine: unknown, because none answers" if present is None else "the engine does not hold it"
        known = published is not None and present is not None
        reason = NOWHERE if known else f"{unknown}; {_of_registry(published)}"
        action = "build"
    return PlanEntry(id=identity, action=action, reason=reason, key=key, warnings=list(warnings))


def _of_registry(published: str | None) -> str:
    return "registry: unknown, because none answers" if published is None else "the registry does not hold it"
