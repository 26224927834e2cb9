"""Check whether images published from here are signed. No build requires that, and no network is used."""

from trainwright.doctor.context import Context, Finding
from trainwright.publish import attest, sign
from trainwright.registry import settings


def check(context: Context) -> Finding:
    required = settings.publication(context.root).signature.required
    key = attest.signing_key()
    if key and not sign.at_hand():
        found = f"{key} was not checked: cosign is downloaded when it is first needed"
        return Finding(check="signing", state="unknown", found=found, fix=f"trainwright cosign public-key --key {key}")
    if not key and required == "always":
        found = f"{settings.FILE} requires signatures, but {sign.KEY} is not set"
        return Finding(check="signing", state="failed", found=found, fix=f"export {sign.KEY}=<key>")
    if not key:
        found = f"nothing is signed: {sign.KEY} is not set" + "; a release requires it" * (required == "release")
        return Finding(check="signing", state="ok", found=found)
    if "://" not in key:
        attest.must_be_possible(context.root, "push")
        return Finding(check="signing", state="ok", found=f"{key} can be used")
    found = f"{key} was not checked: doctor uses no network"
    return Finding(check="signing", state="unknown", found=found, fix=f"trainwright cosign public-key --key {key}")
