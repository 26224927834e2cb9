"""Check the registry that a push would use. One beyond loopback is not queried: doctor uses no network."""

from trainwright.core.errors import RegistryError
from trainwright.doctor.context import Context, Finding
from trainwright.registry import locations


def check(context: Context) -> Finding:
    where = context.registry_host
    if "://" in context.registry:
        found, fix = (
            f"REGISTRY={context.registry} is a URL",
            "REGISTRY=host:port or host:port/prefix, without http://",
        )
        return Finding(check="registry", state="failed", found=found, fix=fix)
    if not locations.OWN.fullmatch(context.registry):
        locations.refuse_words(context.registry)
    if context.registry_answers is None:
        found = f"{where} is not on loopback, and doctor uses no network"
        return Finding(check="registry", state="unknown", found=found, fix="trainwright plan: it queries the registry")
    if context.registry:
        if context.registry_answers:
            return Finding(check="registry", state="ok", found=f"{where} answers")
        fix = "start it, or `unset REGISTRY` and `make registry`"
        return Finding(check="registry", state="failed", found=f"REGISTRY={context.registry} does not answer", fix=fix)
    try:  # as a push does
        locations.hosts(context.root, "")
    except RegistryError as error:
        found = ": ".join(filter(None, (error.what, error.why)))
        return Finding(check="registry", state="warning", found=found, fix=error.fix)
    return Finding(check="registry", state="ok", found=f"{where}, the registry on loopback, answers")
