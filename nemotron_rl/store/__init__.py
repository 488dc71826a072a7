"""Content-addressed artifacts on a file system or in S3. Knows nothing of checkpoints, jobs or Prefect."""

from __future__ import annotations

from nemotron_rl.store.artifacts import ArtifactStore, open_store
from nemotron_rl.store.manifest import Artifact, FileEntry, Manifest, artifact_digest

__all__ = ["Artifact", "ArtifactStore", "FileEntry", "Manifest", "artifact_digest", "open_store"]
