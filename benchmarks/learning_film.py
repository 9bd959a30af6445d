"""A small animated picture of a run that learns, such as docs/learning.gif, or of the trained policy of a recipe.

    mpies train lunar_lander --ranks 2 --out runs/film
    python benchmarks/learning_film.py runs/film --generations 1,10,25,50 --out docs/learning.gif
    python benchmarks/learning_film.py walker2d --steps 240 --width 160 --out results/walker2d/film.gif

Of a run, policies of several generations are side by side: each panel shows held-out episode --episode of the policy
after one generation, which is computed again from the ledger.  The panels share the seed of the episode.  A panel stays
on its last frame until all have ended.  results/humanoid_linear/learning.gif has --generations 20,100,150,180
--steps 300 --width 180.  Of a recipe, there is one panel; results/NAME/film.gif has --steps 240 --width 160.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

import mpies
from mpies.config.recipes import find_recorded_policies
from mpies.report.evaluate import held_out_batch
from mpies.report.video import Renderable, follow, show_episodes, visible_task
from mpies.runs.policy_file import PolicyFile, load_policy
from mpies.training.replay import load_policy_of

STRIDE = 3  # one frame of so many is kept
FRAMES_PER_SECOND = 15
LINGER = 30  # frames at the end
COLOURS = 24

Frames = list[npt.NDArray[np.uint8]]


class Recorder:
    """Keeps every STRIDE-th frame of the episode that is recorded."""

    def __init__(self) -> None:
        self.frames: Frames = []
        self._seen = 0

    def add_frame(self, environment: Renderable) -> None:
        """Keep what the environment looks like now, if it is its turn."""
        if self._seen == 0:
            follow(environment)
        if self._seen % STRIDE == 0:
            self.frames.append(np.asarray(environment.render())[..., :3])
        self._seen += 1


def record(policy: PolicyFile, episode: int) -> tuple[Frames, float]:
    """The frames (height, width, 3) of a held-out episode of a policy, and its return."""
    recorder = Recorder()
    with visible_task(policy.config, recorder, policy.constants) as task:  # type: ignore[arg-type]
        batch = held_out_batch(policy, task, episode + 1)
        returns = show_episodes(task, batch, range(episode, episode + 1))
    return recorder.frames, float(returns[0])


def list_policies(shown: str, generations: str) -> Iterator[tuple[str, PolicyFile]]:
    """Title and policy of each panel.  shown: a run or a recipe.  generations: of a run, such as 1,10."""
    if shown in find_recorded_policies():
        yield shown, load_policy(find_recorded_policies()[shown])
        return
    run = mpies.load(shown)
    seconds = run.metrics["seconds"]
    digits = 0 if seconds[-1] > 100 else 1
    for generation in map(int, generations.split(",")):
        yield f"generation {generation} ({seconds[generation - 1]:,.{digits}f} s)", load_policy_of(shown, generation)


def draw(panels: list[tuple[str, str, Frames]], width: int) -> list[Image.Image]:
    """The frames of the film.  panels: two lines of text and the frames of each."""
    height = width * panels[0][2][0].shape[0] // panels[0][2][0].shape[1]
    font, margin = ImageFont.load_default(size=14), 40
    films = []
    for number in range(max(len(frames) for _, _, frames in panels) + LINGER):
        film = Image.new("RGB", (len(panels) * (width + 4) - 4, height + margin), "white")
        pen = ImageDraw.Draw(film)
        for column, (title, subtitle, frames) in enumerate(panels):
            left = column * (width + 4)
            frame = Image.fromarray(frames[min(number, len(frames) - 1)])
            film.paste(frame.resize((width, height), Image.Resampling.BOX), (left, margin))
            pen.text((left + 4, 2), title, "black", font)
            pen.text((left + 4, 20), subtitle if number >= len(frames) else "", "black", font)
        films.append(film)
    return films


def main() -> None:
    """Write the film and print its size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="directory of a finished run, or the name of a recipe")
    parser.add_argument("--generations", default="1,10,25,50", help="one panel for each; of a run")
    parser.add_argument("--episode", type=int, default=0, help="which held-out episode")
    parser.add_argument("--steps", type=int, help="show only the first so many of an episode; default all")
    parser.add_argument("--width", type=int, default=210, help="pixels of a panel")
    parser.add_argument("--out", default="learning.gif", help="the film")
    arguments = parser.parse_args()
    panels = []
    for title, policy in list_policies(arguments.run, arguments.generations):
        frames, total = record(policy, arguments.episode)
        shown = frames if arguments.steps is None else frames[: max(arguments.steps // STRIDE, 1)]
        panels.append((title, f"return {total:,.0f}", shown))
        print(f"{title}: return {total:.1f}, {len(frames)} frames")
    films = draw(panels, arguments.width)
    palette = films[-1].quantize(COLOURS)  # one for all, so that still parts stay still
    first, *rest = [film.quantize(palette=palette, dither=Image.Dither.NONE) for film in films]
    first.save(
        arguments.out, save_all=True, append_images=rest, duration=1000 // FRAMES_PER_SECOND, loop=0, optimize=True
    )
    print(f"{arguments.out}: {Path(arguments.out).stat().st_size / 1e6:.2f} MB, {len(films)} frames")


if __name__ == "__main__":
    main()
