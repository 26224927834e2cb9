"""A framework small enough to be built many times in a test run: a base with Python, and pip on top of it.

Each checkout is an image of its own (a label says which): one test run never reuses what another one built.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

ROOT = Path(__file__).parents[1]
ID = "tiny-1.0-cpu-py311-ec2"

MATRIX = """\
[common.pins]
python = "distro"
pip = "{pip}"

[targets.ec2.pins]

[frameworks.tiny]
default = "tiny-1.0-cpu-py311-ec2"

[[frameworks.tiny.rows]]
release = "1.0"
accelerators = ["cpu"]
pythons = ["3.11"]
targets = ["ec2"]
bases = ["debian-12"]
pins = {{}}
"""

TEMPLATE = """\
{% import "layers/base.j2" as distribution with context %}
{% import "layers/pip.j2" as pip with context %}
{% import "layers/python.j2" as python with context %}
{{ distribution.stage() }}
{{ python.stage() }}
FROM base
{{ python.runtime() }}
{{ python.install("framework") }}
{{ pip.runtime() }}
LABEL io.trainwright.test="{nonce}"
CMD ["bash"]
"""


def plant(tree: Path) -> None:
    """A checkout whose only framework is `tiny`, with the project's own layers, scripts and settings."""
    import tomlkit

    shutil.copytree(ROOT / "dockerfiles", tree / "dockerfiles", ignore=shutil.ignore_patterns("locks"))
    shutil.copytree(ROOT / "scripts", tree / "scripts")
    components = tomlkit.parse((ROOT / "dockerfiles/components.toml").read_text())
    for name in set(components["components"]) - {"python", "pip"}:
        del components["components"][name]
    components["bases"]["debian-12"]["packages"] = ["apt", "ca-certificates", "tzdata"]
    matrix = tomlkit.parse((ROOT / "dockerfiles/matrix.toml").read_text())
    (tree / "dockerfiles/components.toml").write_text(tomlkit.dumps(components))
    (tree / "dockerfiles/matrix.toml").write_text(MATRIX.format(pip=matrix["common"]["pins"]["pip"]))
    (tree / "dockerfiles/frameworks/tiny.j2").write_text(TEMPLATE.replace("{nonce}", uuid4().hex))


def trainwright(tree: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The real command line, in a process of its own."""
    return subprocess.run(
        [Path(sys.executable).with_name("trainwright"), *words],
        cwd=tree,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
