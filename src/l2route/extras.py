"""Optional dependencies."""


def install(extra: str) -> str:
    """The command that installs an extra of pyproject.toml beside the installed package."""
    return f'pip install "l2route[{extra}]"'
