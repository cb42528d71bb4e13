"""The figures that the papers draw, from runs, results and reports of our own."""
