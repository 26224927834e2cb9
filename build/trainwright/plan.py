"""The input key of an image, and what is to be done about it."""

from collections.abc import Mapping, Sequence

import deflate

from trainwright.lock import digest
from trainwright.model import Action
from trainwright.outcome import PlanEntry

SCHEMA = 1  # raise it by hand when the same inputs come to mean another image
PACKING = 1  # raise it by hand when layers.py or canonical.py come to write the same files as other bytes
SHORT = 12  # hex digits of a key in a tag


def input_key(rendered: Mapping[str, str], files: Mapping[str, str], distribution: str, parent: str = "") -> str:
    """sha256 (hex) over all that goes in, and what packs; over nothing else: no time, host, user, mirror.

    `rendered` maps path to text, `files` maps path to sha256 (and mode), `distribution` is the digest of the
    package manifest, `parent` the key of the image this one starts from.
    """
    return digest([SCHEMA, packer(), dict(rendered), dict(files), distribution, parent])


def packer() -> str:
    """What decides over the bytes of a layer beside the files in it: how it is written, and what compresses it."""
    return f"{PACKING}-deflate-{deflate.__version__}"


def tag(identity: str, key: str) -> str:
    """The tag that means exactly these inputs."""
    return f"{identity}-{key[:SHORT]}"


def decide(
    identity: str,
    key: str,
    published: str | None,
    present: bool | None,
    warnings: Sequence[str] = (),
    blocked: Sequence[str] = (),
) -> PlanEntry:
    """What to do with one image.

    `blocked` is what nobody could establish: such an image is neither built nor published.
    `published` is the digest behind the key's tag, "" where there is none, None where no registry answered;
    `present` says whether the engine holds the image, None where no engine answered.
    """
    action: Action
    if blocked:
        action, reason = "blocked", "; ".join(blocked)
    elif published:
        action, reason = "skip", f"published with this key as {published}"
    elif present:
        action, reason = "reuse", "built with this key already; " + _of_registry(published)
    else:
        unknown = "engine: unknown, none answers" if present is None else "the engine does not hold it"
        action, reason = "build", f"{unknown}; {_of_registry(published)}"
    return PlanEntry(id=identity, action=action, reason=reason, key=key, warnings=list(warnings))


def _of_registry(published: str | None) -> str:
    return "registry: unknown, none answers" if published is None else "the registry does not hold it"
