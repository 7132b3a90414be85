"""Laws of the command `learn`: options and messages."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

from l2route import RoutingIndex
from l2route.cli.app import app
from l2route.cli.fields import descriptions
from l2route.cli.learn import OFFERED
from l2route.training.options import LearnOptions

OWN = {"index", "queries", "neighbors", "checkpoint", "log", "cache", "out", "force"} | {"as_json"}
"""Parameters of the command that are not fields of `LearnOptions`."""


def test_help_and_defaults_are_those_of_the_options() -> None:
    """The help of an option is the first sentence under its field, the default the field's."""
    command = get_command(app).commands["learn"]  # type: ignore[attr-defined] # it is a group
    parameters = {each.name: each for each in command.params if each.name not in OWN}
    assert parameters.keys() == OFFERED.keys()
    assert set(OFFERED) <= {each.name for each in fields(LearnOptions)}
    for name, parameter in parameters.items():
        assert parameter.help == descriptions(LearnOptions)[name]
        assert parameter.default == getattr(LearnOptions(), name)
        assert parameter.opts == [OFFERED[name]]


def test_every_option_is_described() -> None:
    """The description is the first sentence of the docstring under the field."""
    described = descriptions(LearnOptions)
    assert list(described) == [each.name for each in fields(LearnOptions)]
    assert all(text.endswith(".") and len(text) > 10 for text in described.values())
    assert described["seed"] == "Seed of every random choice."
    assert described["recall"] == (
        "Training target given as recall@k, in place of budget and rerank."
    )


def test_expected_memory_is_printed_on_the_error_stream(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expected memory is printed once per run."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    RoutingIndex.build(rng.normal(size=(300, 8)), degree=8).save("index.l2r")
    np.save("queries.npy", rng.normal(size=(200, 8)))
    line = "learn index.l2r --queries queries.npy --budget 40 --steps 2"
    for _ in range(2):
        get_command(app).main(line.split(), standalone_mode=False)
        n_printed = capsys.readouterr().err.count("l2route: learning takes about 0.0 GB of memory")
        assert n_printed == 1
