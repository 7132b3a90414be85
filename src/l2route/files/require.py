"""The check that raises "expected X, got Y"."""


def require(holds: bool, expected: str, got: object) -> None:
    """Raise a ValueError that says what was expected and what was found, unless `holds`."""
    if not holds:
        raise ValueError(f"expected {expected}, got {got!r}")
