"""Copies the helpers of `jit_loader new` into the package: an install has no checkout.

All other settings are in pyproject.toml.
"""

import os
import shutil
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = os.path.dirname(os.path.abspath(__file__))


class BuildWithHelpers(build_py):
    """Copies the files that all ops share; an editable install uses them in place."""

    def run(self):
        super().run()
        if not self.editable_mode:
            for source, target in self._copies().items():
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(os.path.join(ROOT, source), target)

    def get_outputs(self, include_bytecode=1):
        return [*super().get_outputs(include_bytecode), *self._copies().values()]

    def get_source_files(self):
        return [*super().get_source_files(), *self._copies()]

    def _copies(self):
        sys.path.insert(0, ROOT)
        from _jit_loader.commands.new import helper_files

        folder = os.path.join(self.build_lib, "_jit_loader", "commands", "helpers")
        return {path: os.path.join(folder, path) for path in helper_files()}


setup(cmdclass={"build_py": BuildWithHelpers})
