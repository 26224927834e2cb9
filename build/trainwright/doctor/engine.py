"""Check that a Docker daemon answers and is new enough."""

import os

from trainwright.core.errors import EnvironmentProblem
from trainwright.core.versions import at_least
from trainwright.doctor.context import Context, Finding


def check(context: Context) -> Finding:
    if isinstance(context.engine, EnvironmentProblem):
        raise context.engine
    version, minimum = context.engine["version"], context.host.engine.minimum
    where = os.environ.get("DOCKER_HOST", "the default socket")
    if at_least(version, minimum):
        return Finding(check="engine", state="ok", found=f"Docker Engine {version} at {where}")
    return Finding(
        check="engine",
        state="failed",
        found=f"Docker Engine {version} at {where} is older than {minimum}",
        fix="upgrade it, or remove it and run `make engine`",
    )
