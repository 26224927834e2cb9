"""Report the engine's image store; both of Docker's stores are supported."""

from trainwright.core.errors import EnvironmentProblem
from trainwright.doctor.context import Context, Finding


def check(context: Context) -> Finding:
    if isinstance(context.engine, EnvironmentProblem):
        return Finding(check="image store", state="unknown", found=context.engine.what, fix=context.engine.fix)
    found = f"{context.engine['image_store']}, in {context.engine['root']}"
    return Finding(check="image store", state="ok", found=found)
