"""`python -m l2route` is the command line."""

from l2route.cli.app import main

if __name__ == "__main__":
    main()
