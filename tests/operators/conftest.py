"""What tests of operators look on with."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from tests.operators.watching import watch_steps


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """The frames that epochs compute on the way."""
    return watch_steps(monkeypatch)
