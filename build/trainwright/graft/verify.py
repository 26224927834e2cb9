"""Verify a published graft: judge its SBOM and its contents by what this checkout recorded of it."""

from collections.abc import Mapping
from typing import Any

from packaging.utils import canonicalize_name

from trainwright.core.errors import BuildError, TrainwrightError
from trainwright.core.progress import Say, few
from trainwright.docker.oci_layout import DOCKERS, OCIS, Kinds
from trainwright.graft import build, files, look, recorded
from trainwright.graft.files import Graft
from trainwright.graft.found import Found, without_secrets
from trainwright.graft.recorded import Recorded
from trainwright.image import tags
from trainwright.image.inputs import Distribution
from trainwright.inspect.verify_published import Known
from trainwright.matrix.matrix import Intent
from trainwright.publish import sbom as sboms


def known(intent: Intent, labels: Mapping[str, str]) -> Known | None:
    """Return what this checkout knows of an image with these labels; None if it is not a graft."""
    below, identity = labels.get(tags.GRAFT_LABEL, ""), labels.get(tags.ID_LABEL, "")
    if not below:
        return None
    # SageMaker's are Docker's; what else was grafted upon may have layers of zstd, which no Docker media type has.
    kinds = (DOCKERS,) if "-sagemaker-" in identity else (DOCKERS, OCIS)
    try:
        one, made = _inputs(intent, identity, labels.get(tags.KEY_LABEL, ""), below)
    except TrainwrightError as error:
        return _unknown(": ".join(filter(None, (error.what, error.why))), kinds)
    return Known(
        made.inputs,
        "",
        (files.kinds(one.found),),
        lambda bill, digest: bill_differences(one, made, bill, digest),
        lambda uri, say: contents(intent, one, made, uri, say),
    )


def _unknown(why: str, kinds: tuple[Kinds, ...]) -> Known:
    return Known(None, why, kinds, lambda _, __: [], lambda _, __: "")


def _inputs(intent: Intent, identity: str, key: str, below: str) -> tuple[Recorded, Graft]:
    """Return the graft of this checkout with this key. Raises BuildError if it has none, LockError, ConfigError."""
    one = recorded.recorded(intent, identity)
    if one is None:
        raise BuildError(f"this checkout did not graft {identity} upon {below}")
    made = recorded.inputs(intent, one)
    if made.key != key:
        own, other = made.key[: tags.SHORT], key[: tags.SHORT]
        raise BuildError(f"this checkout builds {identity} with key {own}, the image has {other}")
    return one, made


def bill_differences(one: Recorded, made: Graft, bill: Mapping[str, Any], digest: str) -> list[str]:
    """Return what an SBOM lacks of the image below and of the lock, one sentence each.

    Packages of further Pythons, and those that other tools brought, are in it as well: they are not judged.
    """
    problems = [] if (about := sboms.image(bill)) == digest else [f"it is about {about or 'no image'}, not {digest}"]
    python = one.found.python
    wanted = wanted_packages(made.inputs.distribution, one.found)
    problems += _missing("distribution package", wanted, sboms.packages(bill, sboms.kind_of(one.recipe.base)))
    held = dict(python.packages if python else {})
    held |= {entry.name: entry.version for entry in one.recipe.installed(made.inputs.lock).values()}
    named = {str(canonicalize_name(name)): version for name, version in held.items()}
    return problems + _missing("Python package", named, sboms.packages(bill, "pypi"))


def wanted_packages(own: Distribution, below: Found) -> dict[str, str]:
    """Return the distribution's packages of a graft with an SBOM's names: the lock's, else those of the image below."""
    if held := sboms.versions(own.effective):
        return held
    inside = below.inside.packages if below.inside else {}
    return {name: version for name, version in inside.items() if name != sboms.PUBLIC_KEY}


def _missing(what: str, wanted: Mapping[str, str], listed: Mapping[str, str]) -> list[str]:
    return [
        f"{what} {name}: the graft has {version}, the SBOM {listed.get(name, 'nothing')}"
        for name, version in sorted(wanted.items())
        if not set(version.split(" and ")) <= set(listed.get(name, "").split(" and "))
    ]


def contents(intent: Intent, one: Recorded, made: Graft, uri: str, say: Say) -> str:
    """Look into a published graft, compare it with the image below and the lock, and run its own check.

    Returns what passed. Raises BuildError.
    """
    after = without_secrets(look.look(intent, uri, say))
    if wrong := list(build.differences(one.found, after, one.made, made)):
        raise BuildError(few(wrong))
    build.check(intent, one.recipe.id, uri, after.config.user)
    if one.recipe.variant.target == "sagemaker":
        build.enter(intent, one.recipe.id, uri, after)
    packages, python = (after.inside.packages if after.inside else {}), after.python
    said = f"{len(packages)} distribution and {len(python.packages) if python else 0} Python packages"
    return f"{said}, as in {one.found.pinned} and in the lock; trainwright-check passed"
