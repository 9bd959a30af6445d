"""MuJoCo models for EnvPool without textures and materials.

EnvPool reads and compiles the model for each environment that it builds, and most of that time goes into textures,
which only pictures show.  Physics does not know them, so episodes have the same bits without.
"""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from xml.etree import ElementTree

_FOLDER = "mujoco/assets_gym"  # of the models, below EnvPool's `base_path`
_VISIBLE = ("texture", "material")


def without_textures(model: str) -> str:
    """The text of a model (MuJoCo's XML) without its textures and materials."""
    root = ElementTree.fromstring(model)
    for element in root.iter():
        for child in [child for child in element if child.tag in _VISIBLE]:
            element.remove(child)
        element.attrib.pop("material", None)
    return ElementTree.tostring(root, encoding="unicode")


@functools.cache
def plain_models(base_path: str, model: str) -> str:
    """A temporary folder, kept until this process ends, that EnvPool can take for `base_path`.

    base_path: EnvPool's own.  model: the name of the file, such as hopper.xml; EnvPool may take a variant of it, such
    as hopper_envpool.xml.  Returns `base_path` if the models cannot be read, or copied: building then takes longer.
    """
    try:
        files = list(Path(base_path, _FOLDER).glob(f"{Path(model).stem}*.xml"))
        texts = {file.name: without_textures(file.read_text()) for file in files}
        folder = tempfile.mkdtemp(prefix="mpies-models-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        Path(folder, _FOLDER).mkdir(parents=True)
        for name, text in texts.items():
            Path(folder, _FOLDER, name).write_text(text)
    except (OSError, ElementTree.ParseError):
        return base_path
    return folder if texts else base_path
