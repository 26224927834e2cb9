"""Check that every image has a lock, and that it matches the present intent."""

from trainwright.core.errors import FEW, LockError
from trainwright.doctor.context import Context, Finding


def check(context: Context) -> Finding:
    stale = {identity: problem for identity, problem in context.inputs.items() if isinstance(problem, LockError)}
    wrong = list(stale.values())
    if not wrong:
        blocked = len(context.intent.variants) - len(context.inputs)
        said = f"{len(context.inputs)} current" + (f"; {blocked} blocked: trainwright plan" if blocked else "")
        return Finding(check="locks", state="ok", found=said)
    problems = dict.fromkeys(problem.what for problem in wrong)  # images on one base share its package lock
    few = " ".join(stale) if len(stale) <= FEW else ""
    return Finding(check="locks", state="failed", found="; ".join(problems), fix=f"trainwright lock {few}".rstrip())
