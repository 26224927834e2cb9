"""Pull a base image from another publisher's registry, by digest."""

from functools import cache

from trainwright.core.errors import EnvironmentProblem
from trainwright.docker import engine
from trainwright.lock.lockfile import DIGEST
from trainwright.registry import auth


@cache
def pinned(reference: str) -> str:
    """Pull an image; return its reference with a digest, which its registry names if `reference` has none.

    Raises EnvironmentProblem, with the address, if it cannot be pulled.
    """
    engine.pull_only(in_engine(reference), auth.credentials(reference))
    if DIGEST.search(reference):
        return reference
    with engine.told(f"{reference} cannot be described"):
        known = [str(row) for row in engine.client().images.get(reference).attrs.get("RepoDigests") or []]
    repository = _short(repository_of(reference))
    own = [row for row in known if _short(row.partition("@")[0]) == repository]
    if not own:
        raise EnvironmentProblem(
            f"the digest of {reference} is not known",
            why="the engine holds an image of this name that no registry sent",
            fix=f"docker rmi {reference}, then the same command again",
        )
    return f"{reference}@{own[0].partition('@')[2]}"


def repository_of(reference: str) -> str:
    """Return a reference without its tag and its digest."""
    name = reference.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name


def in_engine(reference: str) -> str:
    """Return the name by which an engine pulls and holds an image: with a digest, without the tag beside it."""
    digest = reference.partition("@")[2]
    return f"{repository_of(reference)}@{digest}" if digest else reference


def _short(repository: str) -> str:
    """Return a repository as an engine names it, which leaves out Docker Hub's host."""
    return repository.removeprefix("docker.io/").removeprefix("library/")
