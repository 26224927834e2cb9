"""Build upon an image of unknown origin: look into it, plan what to add or refuse it, build, prove."""
