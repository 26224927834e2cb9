"""What other clients of a registry put there, and ours never does: blobs out of memory, a manifest over another."""

import hashlib

from trainwright.registry import http


def put_blob(repository: str, content: bytes) -> str:
    """Its digest."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    begun = http.ask("POST", repository, "blobs/uploads/", what="a test's blob", accept=(202,))
    place = begun.url.join(begun.headers["Location"]).copy_merge_params({"digest": digest})
    http.ask("PUT", repository, place, what="a test's blob", body=content, accept=(201,))
    return digest


def put_manifest(repository: str, content: bytes, kind: str, reference: str) -> str:
    """Under a tag, whatever that named before, or under its digest. Its digest."""
    headers, place = {"Content-Type": kind}, f"manifests/{reference}"
    http.ask("PUT", repository, place, what="a test's manifest", headers=headers, body=content, accept=(200, 201, 202))
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
