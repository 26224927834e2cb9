"""Where the distribution's packages come from, for each base that is bootstrapped. Nothing is asked for."""

from trainwright import distribution
from trainwright.doctor.context import Context
from trainwright.model import Finding


def check(context: Context) -> Finding:
    bases = [base for base in context.intent.components.bases.values() if base.provider == "packages"]
    said = {archive: address for base in bases for archive, address in distribution.mirrors(base).items()}
    found = ", ".join(f"{archive} {address}" for archive, address in said.items())
    return Finding(check="mirrors", state="ok", found=found or "no base is made of packages")
