"""`python -m quorank`: the command line."""

from quorank.cli.start import main

if __name__ == "__main__":
    main()
