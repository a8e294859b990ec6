"""`python -m leadhand.cli` is the same as `leadhand`."""

from leadhand.cli.main import main

if __name__ == "__main__":
    main()
