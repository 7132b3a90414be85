"""`python -m l2route` is the command line."""

from l2route.cli import main

if __name__ == "__main__":
    main()
