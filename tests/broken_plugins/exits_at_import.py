"""Takes itself for a program."""

import sys

sys.exit("no licence found")
