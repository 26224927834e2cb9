"""Parse NAME=VALUE, the form of every repeated option that assigns values to names."""

from collections.abc import Sequence

from trainwright.core.errors import ConfigError


def pairs(option: str, words: Sequence[str]) -> dict[str, str]:
    """Return the values by name, in order. Raises ConfigError for a word without both, and for a repeated name."""
    found = dict[str, str]()
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise ConfigError(f"{option} {word} is not NAME=VALUE", where=option, fix=f"{option} NAME=VALUE")
        if name in found:
            raise ConfigError(f"{option} {name} is given twice", where=option, fix=f"give {option} {name}=VALUE once")
        found[name] = value
    return found
