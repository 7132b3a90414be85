"""The picture of an explanation: HTML that needs nothing else."""

import json
import re
from html import escape
from importlib.resources import files
from typing import Any

from l2route.explain.drawable import Drawable

MODULES = ("map.js", "chart.js", "walk.js")
"""The drawing, in an order in which each module imports only from those before it."""
STYLE = "walk.css"
"""The look of the drawing."""
HEIGHT = 860
"""Height of the picture in a notebook, in pixels."""
_IMPORT = re.compile(r"^import .*$", re.MULTILINE)
_TEMPLATE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>The walk of a query</title>
<style>{style}
body {{ margin: 0; padding: 0.5rem; background: var(--paper); }}</style>
<div id="walks" class="walks"></div>
<script type="application/json" id="data">{data}</script>
<script type="module">{script}
const given = JSON.parse(document.getElementById("data").textContent);
new Walks(document.getElementById("walks"), given);
</script></html>"""


def drawing_file(name: str) -> str:
    """The text of a file of the drawing: one of MODULES, or STYLE."""
    return files("l2route.explain").joinpath("drawing", name).read_text(encoding="utf-8")


def payload(explanation: Drawable) -> dict[str, Any]:
    """What the drawing reads: the explanation, with a name for every point.

    Ids are text, since JavaScript's numbers cannot hold all of them.
    """
    names = [explanation.name_of(point) for point in range(len(explanation.ids))]
    ids = [str(id_) for id_ in explanation.ids.tolist()]
    return {**explanation.to_dict(), "ids": ids, "names": names}


def html_of(explanation: Drawable) -> str:
    """A frame with the walks and a slider; it loads nothing, and may do nothing but draw."""
    data = json.dumps(payload(explanation), ensure_ascii=True, separators=(",", ":"))
    page = _TEMPLATE.format(
        style=drawing_file(STYLE),
        data=data.replace("<", "\\u003c"),  # no name ends the script
        script="\n".join(_IMPORT.sub("", drawing_file(name)) for name in MODULES),
    )
    return (
        f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" title="The walk of a query" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )
