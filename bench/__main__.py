"""`python -m bench` is the same as `python bench/run.py`."""

import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
runpy.run_module("run", run_name="__main__")
