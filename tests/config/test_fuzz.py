"""Random configs and command lines: none ends in a traceback.  `python benchmarks/fuzz.py` tries ten thousand."""

import subprocess
import sys

from tests.support import HOME


def test_no_random_config_or_command_line_ends_in_a_traceback():
    command = [sys.executable, str(HOME / "benchmarks" / "fuzz.py"), "--cases", "300", "--first", "500000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "300 cases, 0 failed" in done.stdout
