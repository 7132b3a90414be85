"""A finished run that several tests read."""

from collections.abc import Iterator

import pytest

from l2route.reproduce.plan import EXPERIMENTS
from l2route.reproduce.runner import RunStatus, run_experiments
from paper_runs import MINUTES, Finished, make_file, tiny_paper


@pytest.fixture
def small_data_stands_in() -> Iterator[None]:
    """Let small data stand in for the paper's datasets."""
    with tiny_paper():
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """All experiments, run once; tests that change a run copy it first."""
    directory = tmp_path_factory.mktemp("reproduce")
    data = make_file(directory)
    statuses: list[RunStatus] = []
    with tiny_paper():
        run_experiments(
            EXPERIMENTS,
            [data],
            directory / "run",
            minutes=MINUTES,
            on_status=statuses.append,
        )
    return Finished(directory / "run", data, statuses)
