"""What a provider means for one image: its Python requirement, its packages, what an installer brings."""

from fnmatch import fnmatchcase

from trainwright.errors import ConfigError
from trainwright.model import Base, Components, Names, Provider, Text, Variant

VERSIONLESS = ("distro", "bundled")  # kinds of provider where a pin has no choice of versions


def for_accelerator(said: Text, accelerator: str) -> str:
    """What a text of a provider is for this accelerator; "" where there is none."""
    if isinstance(said, str):
        return said
    return next((text for glob, text in said.items() if fnmatchcase(accelerator, glob)), "")


def is_compiled(provider: Provider) -> bool:
    """Whether a stage of its own makes it, of a git tree or a source distribution, with a list of its files."""
    return provider.compile or provider.kind == "source"


def requirement(provider: Provider, accelerator: str, version: str) -> str:
    """The Python requirement that a pin means; "" where the provider has none for this accelerator."""
    return for_accelerator(provider.requirement, accelerator).format(version=version, accelerator=accelerator)


def packages_of(said: Names, variant: Variant, base: Base) -> list[str]:
    """Distribution packages as this base calls them, for the variant's Python; none where it has none."""
    if not isinstance(said, list):
        place = f"{base.distribution}-{base.suite}"
        said = next((names for glob, names in said.items() if fnmatchcase(place, glob)), [])
    return [package.format(python=variant.python) for package in said]


def bundled(components: Components, variant: Variant, pin: str) -> str:
    """The version of a component that comes with another one; "" where the release is known and that is not.

    Raises ConfigError for a release that nobody has written down.
    """
    installer = components.components[pin].provider(variant.pins[pin].provider).bundled_by
    held = variant.pins.get(installer)
    release = components.components[installer].releases.get(held.version) if held else None
    if release is None:
        raise ConfigError(
            f"{variant.id} takes {pin} from {installer}, and nobody has written down what that brings",
            where=f"dockerfiles/layers/{installer}.toml",
            why=f"there is no [releases.{held.version!r}]" if held else f"{installer} is not pinned",
            fix=f"pin {installer} in dockerfiles/matrix.toml"
            if held is None
            else f"add it to dockerfiles/layers/{installer}.toml, with its evidence",
        )
    return release.bundles.get(pin, "")
