"""The version, read by the build and by `elastic-dit --version`."""

__all__ = ["__version__"]

__version__ = "0.1.0"
