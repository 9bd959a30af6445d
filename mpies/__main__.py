"""python -m mpies"""

from mpies.cli import main

main()
