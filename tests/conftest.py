"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A busy machine makes single examples slow; the number of examples is what keeps the suite fast.
settings.register_profile("default", deadline=None, max_examples=50, database=None)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes golden files anew; their diff is to be reviewed like code."""
    parser.addoption("--update-golden", action="store_true", help="write the files under tests/golden anew")
