"""Options of a command that are the fields of a frozen dataclass."""

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_args, get_type_hints

import typer

Command = Callable[..., None]


def with_fields(
    kind: type, offered: Mapping[str, str], make: Callable[..., Any]
) -> Callable[[Command], Command]:
    """Give a command an option for each offered field; it gets all of them as `options`.

    Args:
        kind: the dataclass, whose fields all have defaults.
        offered: flags of the fields that are offered, by name.
        make: called with the fields that are offered; returns what the command gets.
    """
    types, defaults, helps = get_type_hints(kind), kind(), descriptions(kind)
    added = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=getattr(defaults, name),
            annotation=_annotation(types[name], flag, helps[name]),
        )
        for name, flag in offered.items()
    ]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            chosen = {name: given.pop(name) for name in offered}
            command(**given, options=make(**chosen))

        own = [each for each in signature(command).parameters.values() if each.name != "options"]
        named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own]
        run.__signature__ = signature(command).replace(  # type: ignore[attr-defined] # for typer
            parameters=[*named, *added]
        )
        return run

    return decorate


def _annotation(kind: Any, flag: str, text: str) -> Any:
    """The option of a field; one that may have several numbers takes them separated by commas."""
    if Sequence[int] not in get_args(kind):
        return Annotated[kind, typer.Option(flag, help=text)]
    option = typer.Option(flag, help=text, parser=_counts, metavar="INTEGER[,…]")
    return Annotated[int | None, option]


def _counts(text: str) -> int | tuple[int, ...]:
    """A number, or several separated by commas."""
    try:
        counts = tuple(int(part) for part in str(text).split(","))
    except ValueError:
        message = f"expected whole numbers separated by commas, got {text!r}"
        raise typer.BadParameter(message) from None
    return counts[0] if len(counts) == 1 else counts


@cache
def descriptions(kind: type) -> Mapping[str, str]:
    """First sentence of the docstring under each field of a dataclass, by its name."""
    made = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(made, ast.ClassDef)
    found = {}
    for field, text in zip(made.body, made.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            sentences = " ".join(str(ast.literal_eval(text.value)).split())
            found[ast.unparse(field.target)] = sentences.split(". ")[0].rstrip(".") + "."
    return found
