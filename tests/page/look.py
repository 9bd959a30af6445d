"""Write screenshots of the dashboard's page, for looking at and for the readme.

python -m tests.page.look FOLDER RUN OUT                # OUT/phone-light.png and others
python -m tests.page.look FOLDER RUN docs/page.png      # one for the readme

RUN may also be a comparison of runs, +ONE+ANOTHER, a sweep, ~SWEEP, or . for the list alone.
"""

import sys
import threading
from pathlib import Path
from urllib.parse import quote

from mpies.report.web.dashboard import serve
from tests.page.conftest import open_browser

WIDTHS = {"phone": 390, "tablet": 820, "desktop": 1440}  # CSS pixels


def look(folder, run, out):
    """Write screenshots of the page at `run`, one of those below `folder`.  out: a .png file, or a folder of them."""
    shots = {out: ("desktop", "light", False)}  # file to (width, colour scheme, whether the page is shown in full)
    if out.suffix != ".png":
        out.mkdir(parents=True, exist_ok=True)
        kinds = [(width, scheme) for width in WIDTHS for scheme in ("light", "dark")]
        shots = {out / f"{width}-{scheme}.png": (width, scheme, True) for width, scheme in kinds}
    with serve(folder, "127.0.0.1", 0) as server, open_browser() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for path, (width, scheme, is_full) in shots.items():
            # The page scrolls inside itself where it is wide.
            viewport = {"width": WIDTHS[width], "height": 2400 if is_full and width != "phone" else 800}
            page = browser.new_page(viewport=viewport, color_scheme=scheme)
            place = "" if run == "." else run if run[0] in "+~" else "=" + quote(run, safe="")
            page.goto(f"{server.url}#{place}")
            page.wait_for_selector(".uplot canvas" if place else "#runs li")
            page.wait_for_timeout(500)
            page.screenshot(path=path, full_page=is_full)
            page.close()
        server.shutdown()


if __name__ == "__main__":
    look(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
