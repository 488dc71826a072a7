"""The base of every settings class: frozen, strict about keys, and named by a digest of its values."""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable settings. Unknown keys are errors, and every field carries its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True)

    def digest(self) -> str:
        """64 hex digits that name these values: equal settings have equal digests on every machine."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(f"{type(self).__name__}:{text}".encode()).hexdigest()
