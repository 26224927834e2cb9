"""Registries and Amazon ECR: read, upload, tag, and the repositories themselves."""
