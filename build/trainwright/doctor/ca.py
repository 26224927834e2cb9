"""Check that the CA bundles in use exist and hold certificates."""

import os
import ssl

from trainwright.core import certificates, host_settings
from trainwright.doctor.context import Context, Finding


def check(_: Context) -> Finding:
    bundles: dict[str, list[str]] = {}  # path to the settings that name it
    for name, path in _in_use().items():
        if path:
            bundles.setdefault(path, []).append(name)
    if not bundles:
        fix = "apt-get install ca-certificates, or export SSL_CERT_FILE=<bundle>"
        return Finding(check="ca", state="failed", found="this system has no CA bundle", fix=fix)
    given = os.environ.get(certificates.SETTING, "").strip()
    said = [f"{certificates.SETTING}: {len(certificates.own(given))} certificates"] if given else []
    for path, names in bundles.items():
        who = " and ".join(names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(path)
        except OSError as error:  # includes ssl.SSLError
            fix = f"point {who} to a PEM file of CA certificates, or unset it"
            return Finding(check="ca", state="failed", found=f"{path} ({who}): {error}", fix=fix)
        said.append(f"{path} ({who}): {context.cert_store_stats()['x509']} certificates")
    return Finding(check="ca", state="ok", found="; ".join(said))


def _in_use() -> dict[str, str | None]:
    own = os.environ.get("SSL_CERT_FILE")
    return {
        "SSL_CERT_FILE": own,
        "GIT_SSL_CAINFO": os.environ.get("GIT_SSL_CAINFO"),
        "PIP_CERT": os.environ.get("PIP_CERT"),
        "pip's setting `cert`": host_settings.pip_settings().get("cert"),
        "the system": None if own else ssl.get_default_verify_paths().cafile,
    }
