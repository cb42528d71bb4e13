"""`limner` and `python -m limner`, which is what `torchrun -m limner train …` starts."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C is one line from the first moment on.

    Nothing is imported before the `try`: the imports are most of the first second, and an interrupt among them would
    be a stack trace otherwise.
    """
    try:
        from limner.cli.interrupts import check, held_back

        with held_back():
            from limner.cli.main import main as run

            check()
            run()
    except KeyboardInterrupt:
        # an interrupt before `held_back` that passed through `exec` of a text, as dataclasses do it among imports,
        # leaves a mark by which Python ends with the signal and not with our exit code; another `exec` takes it away
        exec("")
        sys.stderr.write("limner: stopped before it began\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
