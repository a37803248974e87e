"""The program for `spark-submit`, which takes files and no commands: `spark-submit ... submit.py run --everyone`."""

from __future__ import annotations

from headgate.cli import main

if __name__ == "__main__":
    main()
