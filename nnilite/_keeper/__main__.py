"""`python -m nnilite._keeper`: the keeper from the source tree."""

import sys

from .program import main

sys.exit(main(sys.argv[1:]))
