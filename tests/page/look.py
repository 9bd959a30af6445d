"""Pictures of the live page, to be looked at, and the one in the readme.

python -m tests.page.look FOLDER RUN OUT                # OUT/phone-light.png and others
python -m tests.page.look FOLDER RUN docs/page.png      # one for the readme
"""

import sys
import threading
from pathlib import Path
from urllib.parse import quote

from mpies.dashboard import serve
from tests.page.browser import open_browser

WIDTHS = {"phone": 360, "desktop": 1280}  # CSS pixels


def look(folder, run, out):
    """Open the page of the runs below `folder` at `run`; write what it shows to `out`, one .png or a folder of them."""
    shots = {out: ("desktop", "light", False)}
    if out.suffix != ".png":
        out.mkdir(parents=True, exist_ok=True)
        looks = [(width, scheme) for width in WIDTHS for scheme in ("light", "dark")]
        shots = {out / f"{width}-{scheme}.png": (width, scheme, True) for width, scheme in looks}
    with serve(folder, "127.0.0.1", 0) as server, open_browser() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for path, (width, scheme, whole) in shots.items():
            # The page scrolls inside itself where it is wide.
            viewport = {"width": WIDTHS[width], "height": 2400 if whole and width == "desktop" else 700}
            page = browser.new_page(viewport=viewport, color_scheme=scheme)
            page.goto(f"{server.url}#={quote(run, safe='')}")
            page.wait_for_selector(".uplot canvas")
            page.wait_for_timeout(500)
            page.screenshot(path=path, full_page=whole)
            page.close()
        server.shutdown()


if __name__ == "__main__":
    look(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
