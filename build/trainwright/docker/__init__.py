"""The Docker engine, buildx, and images as files on this host."""
