"""Loading of a heuristic of one's own by `module:object`, as typed on a command line or in an operator's own file.

Importing a module runs it. So the text must come from whoever runs the program, never from a message or a file that
somebody else may write.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, require


def load_object(text: str) -> Any:
    """Import the object that `module:object` names; modules in the current folder are found too."""
    module, _, name = text.partition(":")
    wrong = f"expected module:object, such as my_product.tuning:heuristic, got {text!r}"
    parts = [*module.split("."), *name.split(".")]
    require(all(part.isidentifier() for part in parts), "heuristic.unknown", wrong, text)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        missing = f"there is no module {error.name!r}; it must be installed, or lie in this folder"
        raise BadInput("heuristic.no-module", missing, text) from None
    except AttributeError as error:
        raise BadInput("heuristic.no-object", f"{error}", text) from None
    except Exception as error:
        fault = f"its module cannot be imported ({type(error).__name__}: {error})"
        raise BadInput("heuristic.no-module", fault, text) from error
    return found
