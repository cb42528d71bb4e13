"""`python -m limner`, which is what `torchrun -m limner train …` starts."""

from limner.cli import main

if __name__ == "__main__":
    main()
