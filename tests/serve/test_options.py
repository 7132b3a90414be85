"""Laws of the server's options: each is described, and numbers out of range are refused."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from l2route.cli.app import main
from l2route.cli.fields import descriptions
from l2route.cli.serve import OFFERED
from l2route.serve.options import ServeOptions


def test_every_option_is_described_and_offered() -> None:
    """Every field has a docstring, and a flag unless it is a secret."""
    described = descriptions(ServeOptions)
    assert set(described) == set(OFFERED) | {"api_key"}
    assert all(text.endswith(".") and len(text) > 10 for text in described.values())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"port": 65536}, "expected port from 0 to 65535, got 65536"),
        ({"threads": -1}, "expected threads from 0"),
        ({"timeout": 0}, "expected timeout from 0.01"),
        ({"timeout": float("nan")}, "expected timeout from 0.01"),
        ({"max_k": 0}, "expected max_k at least 1, got 0"),
        ({"max_work": 0}, "expected max_work at least 1, got 0"),
        ({"max_body_mb": 0}, "expected max_body_mb"),
        ({"log_sample": 1.5}, "expected log_sample from 0 to 1, got 1.5"),
        ({"recall": 0}, "expected recall"),
        ({"api_key": " "}, "expected an API key"),
    ],
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, Any], message: str) -> None:
    """An option out of range is refused with what was expected."""
    with pytest.raises(ValueError, match=message):
        ServeOptions(**wrong)


def test_the_key_is_not_printed() -> None:
    """The key is not in what a debugger or a log prints of the options."""
    assert "hidden" not in repr(ServeOptions(api_key="hidden"))


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without uvicorn, `l2route serve` is one line that names the extra."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "l2route.serve.run", raising=False)
    monkeypatch.setattr(sys, "argv", ["l2route", "serve", "index.l2r"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == 'l2route: serving needs: pip install "l2route[serve]"\n'
