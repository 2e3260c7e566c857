"""HTML pages from Jinja2 templates: they load and run nothing, and suit light, dark, print and phones."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

TEMPLATES = "quorank.reports"
STYLE = (Path(__file__).parent / "templates" / "page.css").read_text(encoding="utf-8")
"""Style sheet of all pages."""


@cache
def environment(package: str = TEMPLATES) -> Environment:
    """Return the environment of a package's `templates` folder, which may extend and include those of reports."""
    loaders = [PackageLoader(name) for name in dict.fromkeys((package, TEMPLATES))]
    return Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, package: str = TEMPLATES, **values: Any) -> str:
    """Render a template; every value that is no Markup is escaped."""
    return environment(package).get_template(template).render(**values)
