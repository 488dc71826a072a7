"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A busy machine makes single examples slow; the number of examples is what keeps the suite fast.
settings.register_profile("default", deadline=None, max_examples=50, database=None)
settings.load_profile("default")
