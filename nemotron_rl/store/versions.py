"""Versions of the packages whose change can change an artifact's bytes."""

from __future__ import annotations

import platform
from importlib import metadata

PACKAGES = ("nemotron-rl", "torch", "megatron-core", "megatron-bridge", "transformers", "sglang", "tokenizers")


def installed_versions() -> dict[str, str]:
    """Version by package, for those of `PACKAGES` that are installed, and Python's own. Imports none of them."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
