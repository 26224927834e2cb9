"""Describe a graft as one more row of the matrix: its base is the image, its pins are what is added. Pure."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from trainwright.graft.found import Found, older, settings
from trainwright.graft.wanted import Wanted
from trainwright.lock import lockfile
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import IN_BASE, Base, Component, Names, Pin, Variant

OWN = "graft"  # the end of the name of a graft's base
MPI_LOGIN = "openssh"  # of the common pins: mpirun starts its daemons on other hosts over ssh
TOOLCHAIN = "compiler"  # of the common pins: what compile stages need beyond their components' own packages
FAMILIES = (("NVIDIA_BUILD_ID", "ngc"), ("NVIDIA_REQUIRE_CUDA", "nvidia"))  # variables that only such images set


def brought(found: Found) -> dict[str, Pin]:
    """Return the components that the image brings, as pins that only declare their versions."""
    python, inside, versions = found.python, found.inside, dict[str, str]()
    if python is None or inside is None:
        return {}
    versions["python"] = python.version
    versions |= {name: one.version for name, one in {**inside.commands, **python.components}.items()}
    versions["nccl"] = found.nccl
    versions["cuda"] = found.cuda
    return {name: Pin(provider=IN_BASE, version=version) for name, version in versions.items() if version}


def added(intent: Intent, found: Found, wanted: Wanted) -> dict[str, Pin]:
    """Return the pins of what a graft adds: those of the fabric's stack and of the target, in the matrix's versions."""
    said = dict[str, str]()
    if stack := stack_of(wanted, found):
        said |= intent.matrix.stacks[stack].pins if stack in intent.matrix.stacks else {}
        said |= {name: text for name, text in intent.matrix.common.pins.items() if name == MPI_LOGIN}
        said.pop("nccl", None)  # the one that the framework maps stays
    if wanted.target == "sagemaker" and wanted.target in intent.matrix.targets:
        said |= intent.matrix.targets[wanted.target].pins
    known = intent.components.components
    return {name: _pin(known[name], text) for name, text in said.items() if name in known}


def stack_of(wanted: Wanted, found: Found) -> str:
    """Return the stack of the matrix that a fabric means for this image, by graft.toml; "" without a fabric."""
    stacks = wanted.settings.fabrics.get(wanted.fabric)
    return "" if stacks is None else stacks.cpu if found.accelerator == "cpu" else stacks.cuda


def _pin(component: Component, text: str) -> Pin:
    """Read a pin that the matrix has validated already."""
    first, _, rest = text.partition(" ")
    named = first in component.providers
    return Pin(provider=first if named else next(iter(component.providers)), version=rest if named else text)


def base(intent: Intent, found: Found) -> Base:
    """Return the image as a base. Its archives are those of a base of the same distribution, of the image's release."""
    says = found.inside.os if found.inside else {}
    distribution, suite = distribution_of(intent, found), says.get("VERSION_CODENAME") or says.get("VERSION_ID", "")
    bases = intent.components.bases.values()
    like = next((one for one in bases if one.distribution == distribution), None)
    newest = max((one.glibc for one in bases), key=lambda text: tuple(map(int, text.split("."))), default=found.glibc)
    own = found.config.environment
    return Base(
        provider="image",
        distribution=distribution,
        suite=suite,
        manager=like.manager if like else "dnf" if of_rpm(found) else "apt",
        sections=like.sections if like else ["main"],
        family=next((family for name, family in FAMILIES if name in own), ""),
        architecture=found.config.architecture,
        archives=_archives(like, suite) if like else {},
        snapshots=like.snapshots if like else {},
        glibc=newest if older(newest, found.glibc) else found.glibc,  # the newest that the resolver knows platforms of
        reference=found.pinned,
    )


def _archives(like: Base, suite: str) -> dict[str, list[str]]:
    return {name: [one.replace(like.suite, suite) for one in suites] for name, suites in like.archives.items()}


def distribution_of(intent: Intent, found: Found) -> str:
    """Return the image's distribution by its name in bases.toml and layers/; "" if the image does not name it."""
    says = found.inside.os.get("ID", "") if found.inside else ""
    return settings(intent.root).distributions.get(says, says)


def of_rpm(found: Found) -> bool:
    """Return whether rpm keeps the image's packages. A record of before they were listed names the manager alone."""
    inside = found.inside
    return bool(inside and (inside.rpms or ("dnf" in inside.managers and "apt-get" not in inside.managers)))


def name_of_base(intent: Intent, found: Found) -> str:
    """Return a name that rules about a release of a distribution read: debian-12-graft."""
    says = found.inside.os if found.inside else {}
    name = distribution_of(intent, found) or "unknown"
    return "-".join(filter(None, (name, says.get("VERSION_ID", ""), OWN)))


def is_graft(recipe: Recipe) -> bool:
    return recipe.variant.base.endswith(f"-{OWN}")


def recipe(intent: Intent, found: Found, wanted: Wanted, identity: str, framework: str) -> Recipe:
    """Return the recipe of a graft, in an intent that has no other image."""
    python, name = found.python, name_of_base(intent, found)
    stack = intent.matrix.stacks.get(stack_of(wanted, found))
    variant = Variant(
        id=identity,
        framework=framework,
        release=identity.split("-")[1],
        accelerator=found.accelerator,
        python=".".join(python.version.split(".")[:2]) if python else "",
        target=wanted.target,
        base=name,
        flavour="",
        devel=False,
        default=False,
        tested="",
        instances=stack.instances if stack else [],
        pins={**brought(found), **added(intent, found, wanted)},
        requirements=wanted.file.path if wanted.file else "",
    )
    components = intent.components.model_copy(update={"bases": {name: base(intent, found)}})
    return Recipe(intent.model_copy(update={"components": components, "variants": [variant]}), variant)


def tools(recipe: Recipe) -> list[str]:
    """Return the packages of compile stages: their components', and a compiler, which the image may lack."""
    return sorted({name for _, names in _of_tools(recipe) for name in recipe.packages(names)})


def _of_tools(recipe: Recipe) -> Iterator[tuple[str, Names]]:
    """Yield components with what compiling them needs. SageMaker's toolkit is a source distribution with C in it."""
    if not recipe.compiles and not lockfile.requirements(recipe):
        return
    yield TOOLCHAIN, recipe.component(TOOLCHAIN).provider("distro").packages
    yield from ((name, recipe.provider(name).build_packages) for name in recipe.pins)


def unnamed(recipe: Recipe) -> list[str]:
    """Return the components whose packages layers/ does not name for the image's distribution, if that has rpm.

    What is named for all distributions are the names of Debian and Ubuntu, which no rpm has.
    """
    if recipe.base.manager != "dnf":
        return []
    asked = [*((name, recipe.provider(name).packages) for name in recipe.pins), *_of_tools(recipe)]
    return sorted({name for name, said in asked if _is_of_others(recipe, said)})


def _is_of_others(recipe: Recipe, said: Names) -> bool:
    if isinstance(said, list):
        return bool(said)
    place = f"{recipe.base.distribution}-{recipe.base.suite}"
    return any(said.values()) and not any(fnmatchcase(place, glob) for glob in said if glob != "*")
