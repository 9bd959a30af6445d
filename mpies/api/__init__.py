"""The Python API.  `mpies/__init__.py` exports its names; users import those."""
