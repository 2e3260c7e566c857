"""The pages of a search folder: `python -m quorank.search.pages FOLDER [PORT]`."""

import sys

from quorank.search.pages.server import serve_forever

if __name__ == "__main__":
    serve_forever(sys.argv[1], port=int(sys.argv[2]) if len(sys.argv) > 2 else 0, browser=False, say=print)
