"""`python -m costguard` does what `costguard` does."""

from costguard.cli import main

if __name__ == "__main__":
    main()
