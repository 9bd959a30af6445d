"""The kernels give the same bits on ARM processors: compiled by Debian's cross compiler, run by qemu."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import HOME

ARM = "aarch64-linux-gnu-gcc"


@pytest.mark.skipif(not (shutil.which(ARM) and shutil.which("qemu-aarch64")), reason="there is no C compiler for ARM")
def test_kernels_on_arm_give_the_bits_of_this_processor(tmp_path):
    sources = [Path(__file__).with_name("other_processors.c"), HOME / "mpies/kernels/kernels.c"]
    flags, printed = ["-ffp-contract=off", "-static", "-I", HOME / "mpies/kernels"], []
    # For ARM as setup.py does.  Here as the code is written: -O3 takes long for each set of instructions.
    for compiler, level, start in (("gcc", "-O0", []), (ARM, "-O3", ["qemu-aarch64"])):
        program = tmp_path / compiler
        subprocess.run([compiler, level, *flags, *sources, "-o", program, "-lm"], check=True)
        printed.append(subprocess.run([*start, program], capture_output=True, text=True, check=True).stdout)
    assert printed[0] == printed[1] and printed[0].count("\n") == 14
