"""Shared by all packages and independent of images: errors, files, programs, this host, git, the console."""
