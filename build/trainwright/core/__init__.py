"""Used by all packages and knows nothing of images: errors, files, programs, this host, git, the console."""
