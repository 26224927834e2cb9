"""Report where Python packages come from on this host, without a request: `trainwright lock` uses the indexes."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainwright.core import host_settings, mirrors
from trainwright.doctor.context import Context, Finding


def check(_: Context) -> Finding:
    settings, mirror = host_settings.pip_settings(), mirrors.named(mirrors.PYTHON)
    default = mirrors.redirect(settings.get("index-url", "PyPI (pip's default)"))
    said = ["index " + (f"{mirror} ({mirrors.SETTING})" if mirror else default)]
    for name in ("extra-index-url", "find-links", "trusted-host"):
        said += [f"{name} {mirrors.redirect(value)}" for value in settings.get(name, "").split()]
    places = [*settings.get("extra-index-url", "").split(), *settings.get("find-links", "").split()]
    if lost := [place for place in places if (path := _local(place)) and not path.exists()]:
        fix = "correct pip's configuration; `pip config debug` shows which file sets it"
        found = f"missing: {', '.join(lost)}; {', '.join(said)}"
        return Finding(check="indexes", state="warning", found=found, fix=fix)
    return Finding(check="indexes", state="ok", found=", ".join(said))


def _local(place: str) -> Path | None:
    """Return the path on this host that a setting names; None for an address."""
    parts = urlsplit(place)
    return Path(unquote(parts.path)).expanduser() if parts.scheme in ("", "file") else None
