"""Write YAML that YAML 1.1 (Kubernetes, CodeBuild) and 1.2 (GitHub) read as the same values."""

import re
from typing import Any

PLAIN = re.compile(r"(--?)?[A-Za-z/][\w./@=+-]*", re.ASCII)
NO_STRINGS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")  # of YAML 1.1 and 1.2


def dump(*documents: Any) -> str:
    """Return the documents as text: whatever could be read as a number, a boolean or syntax is quoted."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # no types are installed
        def ignore_aliases(self, *_: Any) -> bool:
            return True  # readers of manifests expect none

        def increase_indent(self, flow: bool = False, **_: bool) -> None:
            super().increase_indent(flow, indentless=False)

    def written(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        plain = PLAIN.fullmatch(value) and value.lower() not in NO_STRINGS
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, "|" if "\n" in value else "" if plain else '"')

    Dumper.add_representer(str, written)
    return str(yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=2**31))
