"""Where the distribution's packages, sources and files come from, and through which proxy. Nobody is asked."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainwright.core import mirrors as setting
from trainwright.doctor.context import Context, Finding
from trainwright.resolve import apt


def check(context: Context) -> Finding:
    bases = context.intent.components.bases.values()
    setting.check_names(archive for base in bases for archive in base.archives)
    addresses: dict[str, str] = {}  # what is mirrored, or an archive, to where it comes from
    for base in bases:
        if base.provider == "packages":
            addresses |= dict.fromkeys(base.archives, "the snapshot archive") | apt.mirrors(base)
    addresses |= setting.table()
    said = [f"{name} {address}" for name, address in addresses.items()]
    said += [f"{name.replace('_', ' ')} {value}" for name, value in setting.proxies().items()]
    found = ", ".join(said) or "no base is made of packages, and nothing is mirrored"
    if lost := [name for name, address in setting.table().items() if _lost(address)]:
        fix = f"correct {lost[0]} in {setting.SETTING}"
        return Finding(check="mirrors", state="failed", found=f"not there: {', '.join(lost)}; {found}", fix=fix)
    return Finding(check="mirrors", state="ok", found=found)


def _lost(address: str) -> bool:
    """Whether it is a place on this host that does not exist."""
    parts = urlsplit(address)
    return parts.scheme == "file" and not Path(unquote(parts.path)).exists()
