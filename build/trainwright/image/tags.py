"""Make and parse the names that an image is found by: tags, labels, its name in the engine.

| name | form | moves |
|---|---|---|
| tag of a key | `<id>-<12 hex digits of the key>` | never |
| tag of a release | `<id>-<year>.<month>.<patch>` | never |
| alias | `<id>-latest` | with every release |
| zstd twin of one of these tags | `<tag>-zstd`; of the alias `<id>-zstd-latest` | as that tag |
| repository, below the registry | `trainwright/<framework>` | |
| name in the engine | `<repository>:<tag of the key>` | never pushed |
| labels | `io.trainwright.id`, `.key`, `.parent`, `.graft`, `.python`, `.version.<component>` | |
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

SHORT = 12  # hex digits of a key in a tag
KEY, RELEASE = rf"[0-9a-f]{{{SHORT}}}", r"\d{4}\.\d{1,2}\.\d+"
ID_LABEL, KEY_LABEL = "io.trainwright.id", "io.trainwright.key"
PARENT_LABEL = "io.trainwright.parent"  # of an image that was built on top of one of ours: the parent's URI
GRAFT_LABEL = "io.trainwright.graft"  # of a graft: the image of others below it, by digest
PYTHON_LABEL = (
    "io.trainwright.python"  # of a graft: the interpreter that holds the framework, and that a job starts with
)
VERSION_LABEL = "io.trainwright.version."  # labels that repeat a component's row
LATEST, ZSTD = "-latest", "-zstd"  # endings of an alias, and of what names the zstd twin of an image


def key_tag(identity: str, key: str) -> str:
    """Return the immutable tag of exactly these inputs."""
    return f"{identity}-{key[:SHORT]}"


def release_tag(identity: str, name: str) -> str:
    """Return the immutable tag of one image of a release."""
    return f"{identity}-{name}"


def alias(identity: str) -> str:
    """Return the alias that moves with every release.

    Because no filter of ECR can distinguish the bare id from immutable tags, the alias is not the bare id.
    """
    return f"{identity}{LATEST}"


def twin_tag(tag: str) -> str:
    """Return the tag of the zstd twin of the image that `tag` names.

    Because ECR tells the tags that move by how they end, the twin's alias ends as the alias does.
    """
    base = tag.removesuffix(LATEST)
    return f"{tag}{ZSTD}" if base == tag else f"{base}{ZSTD}{LATEST}"


def is_twin(tag: str) -> bool:
    """Return whether twin_tag() may have made this tag."""
    return tag.removesuffix(LATEST).endswith(ZSTD)


def without_twin(tag: str) -> str:
    """Return the tag of the image that a zstd twin is of; any other tag unchanged."""
    base = tag.removesuffix(LATEST)
    return base.removesuffix(ZSTD) + tag[len(base) :]


def is_immutable(tag: str) -> bool:
    """Return whether a tag never moves: that of a key or of a release, or of the zstd twin of one."""
    return bool(re.search(rf"-({KEY}|{RELEASE})({ZSTD})?$", tag))


def movable(tag: str, filters: Iterable[str]) -> bool:
    """Return whether a repository with these exceptions from immutability lets a tag move.

    The only wildcard of Amazon ECR's filters is `*`; it allows neither [ nor ?.
    """
    return any(fnmatchcase(tag, pattern) for pattern in filters)


def is_of_release(tag: str) -> bool:
    return bool(re.search(rf"-{RELEASE}$", tag))


def is_ending(rest: str) -> bool:
    """Return whether the part of a tag after `<id>-` is one that trainwright writes: a key, a release or `latest`."""
    return bool(re.fullmatch(rf"({KEY}|{RELEASE})({ZSTD})?|(zstd-)?latest", rest))


def repository(framework: str) -> str:
    """Return the path of a framework's repository below the registry."""
    return f"trainwright/{framework}"


def name_here(identity: str, key: str) -> str:
    """Return the name in the engine of an image with this id and key, whether the matrix has it or not."""
    return engine_name(identity.partition("-")[0], key_tag(identity, key))


def engine_name(framework: str, tag: str) -> str:
    """Return the image's name in the engine; it is never pushed under that name."""
    return f"{repository(framework)}:{tag}"
