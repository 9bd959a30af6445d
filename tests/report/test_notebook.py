"""The live bar of a notebook, in a real kernel: in this process, as a job, and after the notebook's stop button."""

import re
import time

import pytest

from tests.support import CARTPOLE

manager = pytest.importorskip("jupyter_client.manager", reason="pip install 'mpies[dev]'")
pytest.importorskip("ipykernel", reason="pip install 'mpies[dev]'")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A client of a kernel in a folder with recipe.yaml, and the kernel's manager."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "recipe.yaml").write_text(CARTPOLE)
    started, client = manager.start_new_kernel(kernel_name="python3", cwd=str(folder))
    yield client, started
    client.stop_channels()
    started.shutdown_kernel(now=True)


def run_cell(kernel, code, interrupt_at=None):
    """Run a cell; interrupt it when a display holds that text.  Returns the HTML of its displays, and its output."""
    client, started = kernel
    displays, text, until = [], "", time.monotonic() + 100
    request = client.execute(code)
    while time.monotonic() < until:
        message = client.get_iopub_msg(timeout=100)
        if message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["header"]["msg_type"], message["content"]
        if kind in ("display_data", "update_display_data"):
            displays.append(content["data"].get("text/html", ""))
            if interrupt_at and interrupt_at in displays[-1]:
                started.interrupt_kernel()
                interrupt_at = None
        elif kind in ("stream", "error"):
            text += content.get("text", "") or "\n".join(content["traceback"])
        elif kind == "status" and content["execution_state"] == "idle":
            return displays, text
    raise AssertionError(f"the cell did not end: {text}")


@pytest.mark.parametrize("ranks", [None, 1])
def test_one_bar_moves_and_ends_with_what_has_become_of_the_run(ranks, kernel):
    code = f"import mpies\nrun = mpies.train('recipe.yaml', out='{ranks}', ranks={ranks})"
    displays, text = run_cell(kernel, f"{code}\nprint(run.status, run.generation)")
    assert text == "finished 10\n"
    values = [float(value) for value in re.findall(r'<progress value="([\d.]+)"></progress>', "".join(displays))]
    assert values[0] == 0 and values[-1] == 1 and values == sorted(values)
    assert "generation 10: return" in displays[-1] or "all generations done" in displays[-1]


def test_the_stop_button_returns_the_run(kernel):
    endless = "'stop.generations=1000000', 'evaluation.every=0'"
    code = f"import mpies\nrun = mpies.train('recipe.yaml', {endless}, out='stopped')\nprint(run.status)"
    _, text = run_cell(kernel, code, interrupt_at="generation ")
    assert text == "stopped\n"
