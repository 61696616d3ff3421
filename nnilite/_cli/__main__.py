"""`python -m nnilite._cli` is `nnictl`."""

from nnilite._cli import main

if __name__ == "__main__":
    main()
