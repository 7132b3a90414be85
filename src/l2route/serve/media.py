"""Media types of bodies and answers."""

from __future__ import annotations

from typing import Literal

from fastapi import HTTPException

Media = Literal["application/json", "application/x-npy", "application/vnd.apache.arrow.stream"]
JSON: Media = "application/json"
NPY: Media = "application/x-npy"
ARROW: Media = "application/vnd.apache.arrow.stream"
MEDIA: tuple[Media, ...] = (JSON, NPY, ARROW)


def media_of(content_type: str | None) -> Media:
    """The media type of a body; others are refused with 415.

    Args:
        content_type: the header; None for none, which is refused too.
    """
    named = (content_type or "").partition(";")[0].strip().lower()
    for media in MEDIA:
        if named == media:
            return media
    got = repr(content_type) if content_type else "none"
    raise HTTPException(415, f"expected Content-Type {', '.join(MEDIA)}, got {got}")


def accepted(accept: str | None, same: Media) -> Media:
    """The media type of an answer; what cannot be answered with is refused with 406.

    Args:
        accept: the header; None for any.
        same: the media type of the body, which is preferred where any is accepted.
    """
    if accept is None or accept in ("*/*", same):
        return same
    for named in _by_quality(accept):
        if named in ("*/*", "application/*", same):
            return same
        for media in MEDIA:
            if named == media:
                return media
    raise HTTPException(406, f"expected Accept {', '.join(MEDIA)}, got {accept!r}")


def _by_quality(accept: str) -> list[str]:
    """The types that a header names, those that it prefers first."""
    ranked = []
    for at, part in enumerate(accept.split(",")):
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        if quality > 0:
            ranked.append((-quality, at, name))
    return [name for *_, name in sorted(ranked)]
