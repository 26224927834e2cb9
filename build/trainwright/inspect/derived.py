"""Generate a project that starts from an image, as text, and make an existing Dockerfile start from it by digest."""

import re
import shlex
from difflib import unified_diff

import tomlkit
from pydantic import Field

from trainwright.core.errors import ConfigError
from trainwright.core.toml import Model
from trainwright.image.tags import PARENT_LABEL

FILE = "derived.toml"
# What may stand in RUN, quoted for the shell, and in USER, where Docker puts values in place of $NAME.
PATH = re.compile(r"/[^\x00-\x1f\x7f-\x9f\u2028\u2029]*")
USER = re.compile(r"[\w][\w.@-]*(:[\w][\w.@-]*)?", re.ASCII)
SECRETS = "/run/secrets"  # where a build step finds them
FROM = re.compile(r"^(\s*FROM\s+(?:--\S+\s+)*)(\S+)((?:\s+AS\s+(\S+))?\s*)$", re.IGNORECASE)


class Parent(Model):
    """The image that a project starts from; none of it changes, because the digest covers every byte."""

    id: str
    key: str
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    uri: str  # repository@digest
    python: str = ""  # of a graft: the interpreter that holds the framework; "": pip of PATH is that of /opt/venv
    user: str = ""  # that the image names; "" for root, which may write to site-packages


class Derived(Model):
    """The whole of derived.toml."""

    name: str  # the built image's name in the engine
    parent: Parent


def project(name: str, parent: Parent) -> dict[str, str]:
    """Return the text of each file of the project, by name."""
    return {
        "Dockerfile": _dockerfile(parent),
        "requirements.txt": "# Packages of your own; what the parent was proved with stays as it is.\n",
        FILE: toml(name, parent),
        ".dockerignore": "*\n!Dockerfile\n!requirements.txt\n",
        "README.md": README.format(name=name, id=parent.id, file=FILE, secrets=SECRETS),
    }


def _dockerfile(parent: Parent) -> str:
    """Return the Dockerfile. A graft may have several Pythons, one of the distribution, and a user without rights.

    Raises ConfigError if the image names a Python or a user that would be something else in a Dockerfile.
    """
    # Debian marks its own Python as externally managed, so pip refuses to install there without this variable.
    python = shlex.quote(_written("Python", parent.python, PATH, parent))
    pip = f"PIP_BREAK_SYSTEM_PACKAGES=1 {python} -m pip" if parent.python else "pip"
    user = _written("user", parent.user, USER, parent)
    before, after = ("USER 0\n", f"USER {user}\n") if user else ("", "")
    words = {"id": parent.id, "uri": parent.uri, "label": PARENT_LABEL, "secrets": SECRETS}
    return DOCKERFILE.format(**words, pip=pip, before=before, after=after)


def _written(what: str, text: str, form: re.Pattern[str], parent: Parent) -> str:
    """Return what an image says of itself if it has this form or is empty. Raises ConfigError."""
    if text and not form.fullmatch(text):
        raise ConfigError(
            f"the {what} of {parent.id} cannot be written into a Dockerfile",
            where=parent.uri,
            why=f"the image says it is {text[:200]!r}",
            fix="build the image with an ordinary path and user, such as /opt/venv/bin/python and 1000",
        )
    return text


def toml(name: str, parent: Parent) -> str:
    head = "# Written by `trainwright derive`; `trainwright verify` reads it.\n"
    return head + tomlkit.dumps(Derived(name=name, parent=parent).model_dump(exclude_defaults=True))


DOCKERFILE = """\
# On top of {id}. A digest is one image for ever: it moves only when somebody writes another one here.
FROM {uri}
LABEL {label}="{uri}"

# pip holds requirements.txt to what the parent was proved with, and says which requirement would move it.
# Index and CA are secrets of the build, and in no layer: `trainwright derive --build` gives this host's own.
{before}RUN --mount=type=bind,source=requirements.txt,target=/requirements.txt \\
    --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.pem \\
    PIP_CONFIG_FILE={secrets}/pip.conf {pip} install --no-cache-dir -r /requirements.txt
{after}"""

README = """\
# {name}

Starts from `{id}` by digest ({file}).

Build, with Docker media types and without attestations, which is what SageMaker pulls:

    docker buildx build --provenance=false --sbom=false --output type=image,name={name},oci-mediatypes=false .

Behind an index or a CA of your own, `trainwright derive --build FOLDER` does the same with pip's settings and the CAs
of that host (TRAINWRIGHT_CA) as secrets of the build, which enter no layer. By hand, that is
`--secret id=pip.conf,src=FILE --secret id=ca.pem,src=FILE`, where pip.conf says `cert = {secrets}/ca.pem`.

See that nothing of the parent was changed underneath, and run the parent's image tests on this image (in a checkout of
trainwright; FOLDER is this one):

    trainwright verify FOLDER
    trainwright test --image {name}

Yours are: Python packages that are added, packages of the distribution as long as no library that ranks talk with is
another one, files, labels, CMD, variables that the parent does not set, and the end of PATH. ENTRYPOINT and USER stay.

What the parent needs is all there; what you install comes on top, and `.dockerignore` lets in what the Dockerfile uses.
"""


def rewritten(dockerfile: str, uri: str, where: str) -> str:
    """Return the Dockerfile with its last stage starting from the parent. Raises ConfigError if it has no FROM."""
    lines = dockerfile.splitlines(keepends=True)
    stages = {n: match for n, line in enumerate(lines) if (match := FROM.match(line))}
    if not stages:
        raise ConfigError("the Dockerfile has no FROM", where=where, fix=f"start it with FROM {uri}")
    number = _origin(stages)
    match = stages[number]
    lines[number] = f"{match[1]}{uri}{match[3]}"
    return "".join(lines)


def _origin(stages: dict[int, re.Match[str]]) -> int:
    """Return the line that sets what the last stage starts from, through the stages that it builds upon."""
    number = max(stages)
    while True:
        below = [n for n in stages if n < number and (stages[n][4] or "").lower() == stages[number][2].lower()]
        if not below:
            return number
        number = below[-1]


def difference(old: str, new: str, name: str) -> str:
    """Return a diff for people, or "" if both texts are equal."""
    return "".join(unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), name, name))
