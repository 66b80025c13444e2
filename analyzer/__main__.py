"""`python -m analyzer`: the command without its installed script."""

from analyzer.cli import main

if __name__ == "__main__":
    main()
