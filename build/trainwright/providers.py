"""What a provider means for one image: its Python requirement, its packages, what an installer brings."""

from fnmatch import fnmatchcase

from trainwright.errors import ConfigError
from trainwright.model import Components, Provider, Text, Variant

VERSIONLESS = ("distro", "bundled")  # kinds of provider where a pin has no choice of versions


def for_accelerator(said: Text, accelerator: str) -> str:
    """What a text of a provider is for this accelerator; "" where there is none."""
    if isinstance(said, str):
        return said
    return next((text for glob, text in said.items() if fnmatchcase(accelerator, glob)), "")


def requirement(provider: Provider, accelerator: str, version: str) -> str:
    """The Python requirement that a pin means; "" where the provider has none for this accelerator."""
    return for_accelerator(provider.requirement, accelerator).format(version=version, accelerator=accelerator)


def packages_of(provider: Provider, variant: Variant) -> list[str]:
    """Distribution packages of a provider, for the variant's Python."""
    return [package.format(python=variant.python) for package in provider.packages]


def bundled(components: Components, variant: Variant, pin: str) -> str:
    """The version of a component that comes with another one; "" where the release is known and that is not.

    Raises ConfigError for a release that nobody has written down.
    """
    installer = components.components[pin].providers[variant.pins[pin].provider].bundled_by
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
