"""Resolve rpm packages with dnf in a container of the base itself, and verify the signature of each fetched file."""

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from pydantic import ValidationError

from trainwright.core import mirrors, store
from trainwright.core.certificates import bundle
from trainwright.core.errors import EnvironmentProblem, LockError
from trainwright.core.store import Wanted
from trainwright.lock import rpms
from trainwright.lock.packages import Stanzas
from trainwright.matrix.model import Base, Package
from trainwright.resolve.apt import Apt

SCRIPT = "scripts/rpm_solve.py"
# dnf 4 is a Python program: its first line names the interpreter that has its modules.
START = """
python=$(sed -n '1s/^#! *//p' "$(command -v dnf)" 2>/dev/null | tr -d '\\0')
[ -n "$python" ] || { echo 'this image has no dnf 4, which is a Python program' >&2; exit 1; }
exec $python "$@"
"""
SIGNATURE = re.compile(r"Signature, key (?:ID|fingerprint:?) ([0-9a-f]+): (\w+)")
BATCH = 200  # files that one call of rpmkeys gets


def resolve(root: Path, base: Base, wanted: Sequence[str], where: Apt) -> tuple[str, Stanzas]:
    """Return the date of the newest index (RFC 1123) and every package of the base with the wanted ones installed.

    `where` enters a container of the base, see apt_container.workplace(). Index signatures are verified with the keys
    that the base holds. Raises EnvironmentProblem if an index cannot be had or has a wrong signature, LockError with
    dnf's explanation if the packages cannot be resolved.
    """
    addresses = {name: mirrors.named(name) for name in base.archives}
    redirects = {key: address for key, address in mirrors.table().items() if "://" in key}
    question = {"packages": list(wanted), "repositories": addresses, "redirects": redirects}
    with _asking(root, question, where) as (run, words):
        said = run(
            words,
            error=EnvironmentProblem,
            what=f"the index of a repository of {base.distribution} cannot be used",
            fix="trainwright doctor: it shows the mirrors in use",
        )
    try:
        found = rpms.Solution.model_validate_json(said)
    except ValidationError as error:
        raise EnvironmentProblem(f"{SCRIPT} gave no answer", why=f"{said[-500:]!r}: {str(error)[:300]}") from None
    if found.refused:
        raise LockError(
            "the base's rpm packages cannot be resolved",
            where=base.reference,
            why=found.refused,
            fix="correct `packages` in dockerfiles/layers/*.toml or dockerfiles/bases.toml",
        )
    originals = {address: key.rstrip("/") for key, address in redirects.items()}
    return formatdate(found.date, usegmt=True), rpms.stanzas(found, originals)


@contextmanager
def _asking(
    root: Path, question: Mapping[str, object], where: Apt, *files: Path
) -> Iterator[tuple[Callable[..., str], list[str | Path]]]:
    """Enter the base; yield a function that runs a program there, and the command that answers the question."""
    trusted = bundle(always=True)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "cache").mkdir()
        whole = {"only_keys": False, "ca": trusted, "cache": str(here / "cache"), **question}
        (here / "question.json").write_text(json.dumps(whole))
        (here / "start").write_text(START)
        (here / "solve.py").write_bytes((root / SCRIPT).read_bytes())
        local = [str(address) for address in mirrors.table().values() if str(address).startswith("file:")]
        folders = [Path(unquote(urlsplit(address).path)) for address in local]
        copied = [here, *files, *([Path(trusted)] if trusted else [])]
        with where(copied, [path for path in folders if path.is_dir()]) as run:
            yield run, ["sh", here / "start", here / "solve.py", here / "question.json"]


def signed(root: Path, base: Base, found: Stanzas, where: Apt) -> Stanzas:
    """Return the entries with the key that signed each fetched file, which the store must hold.

    rpm of the base verifies them, with the keys of the base's repositories and no other. Raises LockError for a file
    without a valid signature.
    """
    files = {store.path_of(stanza["SHA256"]): name for name, stanza in found.items() if stanza["SHA256"]}
    if not files:
        return found
    question: dict[str, object] = {"only_keys": True, "repositories": dict.fromkeys(base.archives, ""), "redirects": {}}
    database, said = "/tmp/trainwright-keys", ""
    with _asking(root, question, where, *files) as (run, words):
        what = f"the keys of the repositories of {base.reference} cannot be read"
        keys = json.loads(run(words, error=EnvironmentProblem, what=what))
        run(["mkdir", "-p", database], error=EnvironmentProblem)
        run(
            ["rpmkeys", "--dbpath", database, "--import", *keys],
            error=EnvironmentProblem,
            what=f"rpm of {base.reference} cannot read the keys of its repositories",
        )
        paths = list(files)
        for start in range(0, len(paths), BATCH):
            check = ["rpmkeys", "--dbpath", database, "--checksig", "--verbose", *paths[start : start + BATCH]]
            said += run(["sh", "-c", '"$@" 2>&1 || true', "check", *check], error=EnvironmentProblem)
    return found | {name: found[name] | {rpms.SIGNED: key} for name, key in _judged(said, files, found).items()}


def _judged(said: str, files: dict[Path, str], found: Stanzas) -> dict[str, str]:
    """Map each package to the key of its signature. Raises LockError for the first file that is not well signed."""
    blocks = dict[str, list[str]]()
    for line in said.splitlines():
        if not line.startswith((" ", "\t")) and line.endswith(":"):
            blocks[line[:-1]] = []
        elif blocks:
            blocks[next(reversed(blocks))].append(line.strip())
    keys = {}
    for path, name in files.items():
        lines = blocks.get(str(path), [])
        signatures = SIGNATURE.findall("\n".join(lines))
        bad = [line for line in lines if not line.endswith(": OK")]
        if bad or not signatures:
            stanza = found[name]
            raise LockError(
                f"{stanza['Filename']} of {stanza['Archive']} has no valid signature",
                where=stanza[rpms.ADDRESS],
                why=bad[0]
                if bad
                else "rpm finds no signature in it"
                if lines
                else f"rpm says nothing of it: {said[-300:]}",
                fix="do not use this mirror; trainwright doctor shows the mirrors in use",
            )
        keys[name] = signatures[0][0]
    return keys


def wanted(packages: Iterable[Package]) -> list[Wanted]:
    """List where the files of locked packages may come from: the named mirror of the repository, then upstream."""
    files = []
    for package in packages:
        mirror = mirrors.named(package.archive)
        urls = [urljoin(f"{mirror}/", package.location)] if mirror else []
        name = f"{package.name} {package.version}"
        files.append(Wanted(name=name, sha256=package.sha256, size=package.size, urls=[*urls, package.address]))
    return files
