"""The buildx plugin that we call is new enough; the `docker` that a person calls finds one, too."""

import shutil

from trainwright.core.errors import NotRunError, TrainwrightError
from trainwright.core.process import run
from trainwright.core.versions import at_least
from trainwright.docker import engine
from trainwright.doctor.context import Context, Finding


def check(context: Context) -> Finding:
    plugin, minimum = engine.buildx(), context.host.engine.buildx_minimum
    version = engine.buildx_version() or "without a version"
    found = f"buildx {version}, {plugin}"
    if not at_least(version, minimum):
        fix = f"mv {plugin} /tmp/ && make engine"
        return Finding(check="buildx", state="failed", found=f"{found}, is older than {minimum}", fix=fix)
    if problem := _bare_client():
        fix = f"builds work as they are; for `docker buildx` by hand: {problem[1]}"
        return Finding(check="buildx", state="warning", found=f"{found}; but {problem[0]}", fix=fix)
    return Finding(check="buildx", state="ok", found=found)


def _bare_client() -> tuple[str, str] | None:
    """What is wrong with the `docker` first in PATH, and how to mend that; None where it knows buildx."""
    client = shutil.which("docker")
    if client is None:
        return "there is no `docker` in PATH", "make engine"
    try:
        run([client, "buildx", "version"], error=NotRunError)
    except (TrainwrightError, OSError):
        return f"{client}, the first in PATH, knows no buildx", f"put another docker before {client} in PATH"
    return None
