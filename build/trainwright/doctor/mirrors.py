"""Report where the distribution's packages, sources and files come from, and the proxies, without a request."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainwright.core import mirrors as setting
from trainwright.doctor.context import Context, Finding
from trainwright.resolve import apt


def check(context: Context) -> Finding:
    bases = context.intent.components.bases.values()
    setting.check_names(archive for base in bases for archive in base.archives)
    addresses: dict[str, str] = {}  # mirrored address or archive to its source
    for base in bases:
        if base.provider == "packages":
            addresses |= dict.fromkeys(base.archives, "the snapshot archive") | apt.mirrors(base)
    addresses |= setting.table()
    said = [f"{name} {address}" for name, address in addresses.items()]
    said += [f"{name.replace('_', ' ')} {value}" for name, value in setting.proxies().items()]
    found = ", ".join(said) or "no base is built from packages, and no mirror is set"
    if lost := [name for name, address in setting.table().items() if _lost(address)]:
        fix = f"correct {lost[0]} in {setting.SETTING}"
        return Finding(check="mirrors", state="failed", found=f"missing: {', '.join(lost)}; {found}", fix=fix)
    return Finding(check="mirrors", state="ok", found=found)


def _lost(address: str) -> bool:
    """Return whether the address is a path on this host that does not exist."""
    parts = urlsplit(address)
    return parts.scheme == "file" and not Path(unquote(parts.path)).exists()
