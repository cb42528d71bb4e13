"""`python -m limner`, which is what `accelerate launch -m limner train …` starts."""

from limner.cli import main

if __name__ == "__main__":
    main()
