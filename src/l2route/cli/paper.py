"""The commands that repeat the paper: `reproduce` and `progress`."""

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from l2route.cli.progress import bar
from l2route.extras import install
from l2route.reproduce.plan import EXPERIMENTS, TOY_PICTURE

if TYPE_CHECKING:
    from l2route.reproduce.runner import RunStatus

NAMES = ("toy", *EXPERIMENTS, "all")
Run = Annotated[Path, typer.Argument(help="Directory of a run.")]


def reproduce(
    name: Annotated[str, typer.Argument(help=f"Experiment: {', '.join(NAMES)}.")],
    more: Annotated[
        list[Path] | None, typer.Argument(help="Further files of data.", show_default=False)
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Files with base, learn and query: .npz or .hdf5; toy needs none."),
    ] = None,
    minutes_per_run: Annotated[
        float | None, typer.Option(help="Time limit of learning, in place of the experiments' own.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory of the run.")] = Path(
        "out/reproduce"
    ),
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    background: Annotated[
        bool, typer.Option("--background", help="Run in a process of its own; see `progress`.")
    ] = False,
) -> None:
    """Repeat an experiment of the paper, or resume an interrupted run."""
    files = [*(data or []), *(more or [])]
    _check(name, files, minutes_per_run)
    out.mkdir(parents=True, exist_ok=True)
    if background:
        _detach(out)
        return
    if name == "toy":
        _run_toy(out)
        return
    _run(EXPERIMENTS if name == "all" else [name], files, out, minutes_per_run, seed)
    if name == "all" and not (out / TOY_PICTURE).exists():
        _run_toy(out / TOY_PICTURE.parent)
    _print_tables(out)


def progress(run: Run) -> None:
    """Print the status of a run and the time left."""
    from l2route.reproduce.store import Store

    store = Store(run)
    facts = store.status()
    if facts is None:
        raise ValueError(f"expected a run in {run}, got no progress.json there")
    since = time.time() - facts["time"]
    left = max(0.0, facts["seconds_left"] - since)
    print(_status_line(facts["n_done"], facts["n_cells"], left, facts["last"]))
    if facts["now"]:
        interrupted = "interrupted; the same command resumes it"
        since_when = f"{_duration(since)} ago" if store.is_locked() else interrupted
        print(f"{facts['now']} ({since_when})")


def _check(name: str, files: Sequence[Path], minutes: float | None) -> None:
    """Refuse wrong arguments before anything is run."""
    if name not in NAMES:
        raise ValueError(f"expected an experiment ({', '.join(NAMES)}), got {name!r}")
    if missing := [str(file) for file in files if not file.is_file()]:
        raise ValueError(f"expected files of data, got no {', '.join(missing)}")
    if name != "toy" and not files:
        raise ValueError(f"expected --data FILE for {name}, got none")
    if minutes is not None and minutes <= 0:
        raise ValueError(f"expected minutes above 0, got {minutes}")


def _run(
    names: Sequence[str], files: Sequence[Path], out: Path, minutes: float | None, seed: int
) -> None:
    with _needing_torch():
        from l2route.reproduce.runner import run_experiments
    run_experiments(names, files, out, minutes=minutes, seed=seed, on_status=_show)


def _print_tables(out: Path) -> None:
    from l2route.reproduce.store import Store
    from l2route.reproduce.summary import as_markdown, summarize

    store = Store(out)
    print(as_markdown(summarize(store), store))
    print(f"the same as a page: l2route report {shlex.quote(str(out))}")


@contextmanager
def _needing_torch() -> Iterator[None]:
    """Name the extra to install if an import fails."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"learning needs: {install('train')}") from error


def _run_toy(out: Path) -> None:
    with _needing_torch():
        from l2route.reproduce.toy import run_toy

    with bar("learning") as advance:
        run_toy(out, Console(), on_event=lambda event: advance(event.step, event.n_steps))


def _show(status: "RunStatus") -> None:
    words = _status_line(status.n_done, status.n_cells, status.seconds_left, status.last)
    print(words, file=sys.stderr, flush=True)


def _status_line(n_done: int, n_cells: int, seconds_left: float, last: str) -> str:
    left = "nothing left" if n_done == n_cells else f"about {_duration(seconds_left)} left"
    return f"[{n_done}/{n_cells}] {last}; {left}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def _detach(out: Path) -> None:
    """Run the same command in a process of its own that writes to a log file."""
    words = [word for word in sys.argv[1:] if word != "--background"]
    with (out / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "l2route", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    print(f"process {process.pid} writes {out / 'log.txt'}; l2route progress {out}")
