"""Use registries and Amazon ECR: read, upload, tag, and manage repositories."""
