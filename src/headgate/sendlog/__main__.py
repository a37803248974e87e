"""`python -m headgate.sendlog CONFIG`: one principal as a process."""

from __future__ import annotations

import sys
from pathlib import Path

from headgate.sendlog.process import run_node

run_node(Path(sys.argv[1]))
