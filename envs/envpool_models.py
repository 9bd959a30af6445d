"""MuJoCo models for EnvPool without textures and materials.

EnvPool reads and compiles the model for each environment that it builds, and most of that time goes into textures,
which only pictures show.  Physics does not know them, so episodes have the same bits without.
"""

import functools
import hashlib
import os
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
    """A folder of this user's for temporary files, which all processes share, that EnvPool can take for `base_path`.

    base_path: EnvPool's own.  model: the name of the file, such as hopper.xml; EnvPool may take a variant of it, such
    as hopper_envpool.xml.  Returns `base_path` if the models cannot be read, or copied: building then takes longer.
    """
    try:
        files = list(Path(base_path, _FOLDER).glob(f"{Path(model).stem}*.xml"))
        texts = {file.name: without_textures(file.read_text()) for file in files}
        if not texts:
            return base_path
        version = hashlib.sha256("".join(texts[name] for name in sorted(texts)).encode()).hexdigest()[:12]
        folder = Path(tempfile.gettempdir(), f"mpies-models-{os.getuid()}-{version}")
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat(follow_symlinks=False).st_uid != os.getuid():  # somebody else could change the models
            return base_path
        (folder / _FOLDER).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            temporary = folder / _FOLDER / f".{name}.{os.getpid()}"
            temporary.write_text(text)
            temporary.replace(folder / _FOLDER / name)  # another process may be reading it
    except (OSError, ElementTree.ParseError):
        return base_path
    return str(folder)
