"""Check that the buildx plugin in use is new enough, and that `docker` in PATH finds one."""

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
        fix = f"trainwright's builds work; to run `docker buildx` by hand: {problem[1]}"
        return Finding(check="buildx", state="warning", found=f"{found}; but {problem[0]}", fix=fix)
    return Finding(check="buildx", state="ok", found=found)


def _bare_client() -> tuple[str, str] | None:
    """Return the problem of the first `docker` in PATH, and its fix; None if it has buildx."""
    client = shutil.which("docker")
    if client is None:
        return "`docker` is not in PATH", "make engine"
    try:
        run([client, "buildx", "version"], error=NotRunError)
    except (TrainwrightError, OSError):
        return f"{client}, the first in PATH, has no buildx", f"put another docker before {client} in PATH"
    return None
