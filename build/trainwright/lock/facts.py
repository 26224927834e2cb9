"""Collect what an image contains, as far as it is known: the exact versions that the compatibility rules judge."""

from collections.abc import Mapping

from trainwright.core import project
from trainwright.core.toml import load
from trainwright.lock.lockfile import name_of, python_name
from trainwright.matrix.compat import FILE as COMPAT
from trainwright.matrix.compat import Compat, Verdict, place, violations
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.matrix.model import Component, Lock, Package, PythonFile
from trainwright.matrix.providers import VERSIONLESS, bundled, requirement
from trainwright.matrix.remedy import nearest, refuse, sentence
from trainwright.matrix.validate import MATRIX, declared

PLUGIN = "aws-ofi-nccl"
CAPABILITIES = ("sm", "highest-sm")  # lowest and highest of an image's instance types


def came_along(recipe: Recipe, locked: Lock | None) -> dict[str, PythonFile]:
    """Return components that are not pinned but are wheels of the lock, such as a framework's NCCL and CUDA."""
    files, found = recipe.installed(locked), {}
    for name, component in recipe.intent.components.components.items():
        for provider in component.providers.values() if name not in recipe.pins else ():
            text = requirement(provider, recipe.variant.accelerator, "0")
            if text and (entry := files.get(name_of(text))):
                found[name] = entry
    return found


def versions_of(recipe: Recipe, locked: Lock | None, packages: Mapping[str, Package]) -> dict[str, str]:
    """Map components to exact versions: without locks, the pins'; versions that only a lock knows are left out."""
    files = recipe.installed(locked)
    found = {name: entry.version for name, entry in came_along(recipe, locked).items()}
    for name, pin in recipe.pins.items():
        provider = recipe.provider(name)
        entry = files.get(python_name(recipe, name))
        if provider.kind == "bundled":
            found |= {name: version} if (version := bundled(recipe.intent.components, recipe.variant, name)) else {}
        elif provider.kind == "distro":
            first = next(iter(recipe.packages(provider.packages)), "")
            found |= {name: packages[first].version} if first in packages else {}
        else:
            brought = locked.brought.get(name, "") if locked and provider.kind == "base" else ""
            found |= {name: version} if (version := entry.version if entry else brought or pin.version) else {}
    return found


def facts_of(
    recipe: Recipe,
    locked: Lock | None,
    packages: Mapping[str, Package],
    build_packages: Mapping[str, Package],
) -> dict[str, str]:
    """Return all facts for compat.toml. `packages` are those of the base, `build_packages` of compile stages."""
    facts = versions_of(recipe, locked, packages)
    base = recipe.base
    facts |= {"base": recipe.variant.base, "glibc": base.glibc}
    if capabilities := recipe.capabilities:
        facts |= dict(zip(CAPABILITIES, (capabilities[0], capabilities[-1]), strict=True))
    if "cuda" in facts and recipe.has_compilers:
        facts["nvcc"] = facts["cuda"]
    if recipe.variant.driver:
        facts["driver"] = recipe.variant.driver
    if base.architecture == "arm64":
        facts["arm64"] = "1"
    if compiled := _plugin_libfabric(recipe, build_packages):
        facts["plugin-libfabric"] = compiled
    installer = recipe.provider(PLUGIN).bundled_by if PLUGIN in recipe.pins else ""
    if held := recipe.pins.get(installer):
        facts["plugin-installer"] = held.version
    return facts


def undocumented(recipe: Recipe) -> list[str]:
    """Return what an image relies on and no source states, as far as its pins show it."""
    found = violations(recipe.intent.compat, facts_of(recipe, None, {}, {}))
    return [f"{sentence(verdict)}: {verdict.rule}" for verdict in found if verdict.state == "not established"]


def _plugin_libfabric(recipe: Recipe, build_packages: Mapping[str, Package]) -> str:
    """Return the libfabric that the plugin was compiled against: its installer's, or the headers of the compile stage.

    The headers come from the provider of libfabric's pin, not the plugin's: the plugin uses those that are installed.
    """
    library = "libfabric"
    if PLUGIN not in recipe.pins:
        return ""
    brought = [recipe.provider(name) for name in (PLUGIN, library) if name in recipe.pins]
    if installer := next((provider.bundled_by for provider in brought if provider.bundled_by), ""):
        held = recipe.pins.get(installer)
        releases = recipe.component(installer).releases
        return releases[held.version].bundles.get(library, "") if held and held.version in releases else ""
    wanted = (name for provider in brought for name in recipe.packages(provider.build_packages))
    names = [name for name in wanted if name.startswith(library)]
    return next((build_packages[name].version for name in names if name in build_packages), "")


def lockable(component: Component) -> list[str]:
    """Return releases with commit or sha256: a component that is not a Python package can be locked only to these."""
    return [version for version, release in component.releases.items() if release.commit or release.sha256]


def known_releases(recipe: Recipe) -> dict[str, list[str]]:
    """Map each component to the versions that the image could use: those in the component's file or in any pin.

    For a component fetched as a file or a git tree, only lockable releases count; others would be wrong advice.
    """
    return {
        name: sorted(
            lockable(component)
            if name in recipe.pins and recipe.provider(name).kind in ("source", "file")
            else {
                *component.releases,
                *(held.pins[name].version for held in recipe.intent.variants if name in held.pins),
            }
            - {""}
        )
        for name, component in recipe.intent.components.components.items()
    }


def bundles(intent: Intent) -> dict[str, dict[str, dict[str, str]]]:
    """Map each installer to its versions, and each version to the components it bundles."""
    return {
        name: {version: release.bundles for version, release in component.releases.items()}
        for name, component in intent.components.components.items()
        if any(release.bundles for release in component.releases.values())
    }


def admit(
    recipe: Recipe, locked: Lock | None, packages: Mapping[str, Package], build_packages: Mapping[str, Package]
) -> list[Verdict]:
    """Return an image's rule warnings; without locks, by its pins. Raises IncompatibleError if it breaks a rule."""
    facts = facts_of(recipe, locked, packages, build_packages)
    found = violations(recipe.intent.compat, facts)
    first = next((verdict for verdict in found if verdict.severity == "refuse"), None)
    if first is None:
        return found  # the rest is for refusals only, and takes longer than judging the rules
    known, brought = known_releases(recipe), bundles(recipe.intent)
    text = (recipe.root / MATRIX).read_text()
    remedy = nearest(recipe.intent.compat, facts, first, known, brought)
    sides = [remedy[0]] if remedy and _as_pinned(recipe, *remedy) else []  # the pin to change, if there is one
    sides += [side.name for verdict in found for side in (verdict.a, verdict.b) if side]
    pinned = next((name for name in sides if name in recipe.pins), next(iter(recipe.pins)))
    return refuse(
        recipe.id,
        declared(recipe.intent.matrix, recipe.variant, pinned, text)[1],
        found,
        lambda _: remedy,
        lambda name, version: _as_pinned(recipe, name, version),
        lambda verdict: _of_instances(recipe, verdict),
        lambda verdict: place(recipe.root, verdict),
    )


def overridden(
    recipe: Recipe, locked: Lock | None, packages: Mapping[str, Package], build_packages: Mapping[str, Package]
) -> list[str]:
    """Return the installed rules that an image breaks, or that are not established for it, and a project overrides."""
    if not any(entry["file"] == COMPAT for entry in project.overlay(recipe.root).get("overrides", [])):
        return []
    facts = facts_of(recipe, locked, packages, build_packages)
    still = {verdict.rule for verdict in violations(recipe.intent.compat, facts)}
    before = violations(load(project.installed() / COMPAT, Compat), facts)
    return [f"{sentence(verdict)}: {verdict.rule}" for verdict in before if verdict.rule not in still]


def _of_instances(recipe: Recipe, verdict: Verdict) -> str:
    """Return the row's instance types with the compute capability of a verdict; "" if the rule is about none."""
    held = {side.version for side in (verdict.a, verdict.b) if side and side.name in CAPABILITIES}
    table = recipe.intent.instances
    found = [f"{name} ({table[name].gpu}) is sm {table[name].sm}" for name in recipe.variant.instances]
    return ", ".join(text for text in found if text.rpartition(" ")[2] in held)


def _as_pinned(recipe: Recipe, name: str, version: str) -> str:
    """Return the matrix.toml line that pins this version with the image's provider; "" if that takes no version."""
    if name not in recipe.pins or recipe.provider(name).kind in VERSIONLESS:
        return ""
    several = len(recipe.component(name).providers) > 1
    return f'{name} = "{recipe.pins[name].provider + " " if several else ""}{version}"'
