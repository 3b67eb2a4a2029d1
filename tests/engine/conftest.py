"""One Ray cluster for all tests of this folder: it is started when the first test asks for it."""

from collections.abc import Iterator

import pytest

from judge_kit import bubblewrap
from ray_kit import Cluster, cluster


@pytest.fixture(scope="session")
def nodes() -> Iterator[Cluster]:
    """Two nodes, each of which can hold boxes."""
    bubblewrap()
    with cluster() as made:
        yield made
