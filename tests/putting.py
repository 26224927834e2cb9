"""Write to a registry as other clients do and ours never does: blobs from memory, a manifest over another one."""

import hashlib

from trainwright.registry import http


def put_blob(repository: str, content: bytes) -> str:
    """Upload a blob, and return its digest."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    begun = http.ask("POST", repository, "blobs/uploads/", what="a test's blob", accept=(202,))
    place = begun.url.join(begun.headers["Location"]).copy_merge_params({"digest": digest})
    http.ask("PUT", repository, place, what="a test's blob", body=content, accept=(201,))
    return digest


def put_manifest(repository: str, content: bytes, kind: str, reference: str) -> str:
    """Put a manifest under a tag, replacing what the tag named before, or under its digest. Return its digest."""
    headers, place = {"Content-Type": kind}, f"manifests/{reference}"
    http.ask("PUT", repository, place, what="a test's manifest", headers=headers, body=content, accept=(200, 201, 202))
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
