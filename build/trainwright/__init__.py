"""trainwright: training images for AWS accelerators that are what they say they are."""

__version__ = "0.1.0"
