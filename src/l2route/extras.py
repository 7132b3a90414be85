"""Optional dependencies."""


def install(extra: str) -> str:
    """The command that installs an extra of pyproject.toml, in l2route's source directory."""
    return f'pip install ".[{extra}]"'
