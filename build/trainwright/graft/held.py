"""Look into a base that others made, for the lock of a row of the matrix: the same look as that of a graft."""

from trainwright.core.errors import BuildError
from trainwright.core.progress import Say
from trainwright.graft.look import look
from trainwright.matrix.matrix import Intent
from trainwright.resolve.own_python import Held


def held(intent: Intent, reference: str, say: Say) -> Held:
    """Return what the Python of an image holds. Raises BuildError if no Python can be started in it."""
    found = look(intent, reference, say)
    python = found.python
    if found.inside is None or python is None:
        why = found.silent or "neither PATH nor the usual prefixes have a Python that starts"
        raise BuildError(f"{reference} has no Python of its own", where=reference, why=why)
    versions = {name: one.version for name, one in {**python.components, **found.inside.commands}.items()}
    return Held(
        python=python.path,
        first=found.inside.pythons[0].path,
        version=python.version,
        packages=python.packages,
        components=versions | {"python": python.version} | ({"nccl": found.nccl} if found.nccls else {}),
    )
