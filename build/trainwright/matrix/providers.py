"""Resolve a provider for one image: its Python requirement, its packages, what an installer bundles."""

from fnmatch import fnmatchcase

from trainwright.core.errors import ConfigError
from trainwright.matrix.model import Components, Provider, Text, Variant

VERSIONLESS = ("distro", "bundled")  # kinds of provider whose pins choose no version


def for_accelerator(said: Text, accelerator: str) -> str:
    """Return a provider's text for this accelerator, or "" if there is none."""
    if isinstance(said, str):
        return said
    return next((text for glob, text in said.items() if fnmatchcase(accelerator, glob)), "")


def is_compiled(provider: Provider) -> bool:
    """Return whether a separate stage makes it, from a git tree or a source distribution, with a list of its files."""
    return provider.compile or provider.kind == "source"


def requirement(provider: Provider, accelerator: str, version: str) -> str:
    """Return the Python requirement of a pin, or "" if the provider has none for this accelerator."""
    return for_accelerator(provider.requirement, accelerator).format(version=version, accelerator=accelerator)


def bundled(components: Components, variant: Variant, pin: str) -> str:
    """Return the version of a component that another one bundles, or "" if its known release does not bundle it.

    Raises ConfigError if the release is not recorded or the installer is not pinned.
    """
    installer = components.components[pin].provider(variant.pins[pin].provider).bundled_by
    held = variant.pins.get(installer)
    release = components.components[installer].releases.get(held.version) if held else None
    if release is None:
        raise ConfigError(
            f"{variant.id} takes {pin} from {installer}, whose contents are not declared",
            where=f"dockerfiles/layers/{installer}.toml",
            why=f"[releases.{held.version!r}] is missing" if held else f"{installer} is not pinned",
            fix=f"pin {installer} in dockerfiles/matrix.toml"
            if held is None
            else f"add it to dockerfiles/layers/{installer}.toml, with its evidence",
        )
    return release.bundles.get(pin, "")
