"""The command line as `python -m mpies`."""

from mpies.cli.main import main

main()
