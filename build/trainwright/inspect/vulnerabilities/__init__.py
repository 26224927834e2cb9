"""Find the known vulnerabilities of images in a snapshot of advisories that the user names."""
