"""Push, attest, sign, release and prune images."""
