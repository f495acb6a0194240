"""A build of C++ has a short route, and imports no module of CUDA."""

import json

# Prints {step: the frames of _jit_loader that are active at the start of a step of a build}, and
# the modules of the loader that the build has imported.
SCRIPT = """
import json, os, sys, traceback
import _jit_loader, jit_loader
loader, steps = os.path.dirname(_jit_loader.__file__) + os.sep, {{}}
def note(event, arguments):
    if event == "subprocess.Popen" and any("ninja" in str(word) for word in arguments[1]):
        step = "compile"
    elif event == "import" and str(arguments[1]).endswith("tiny.so"):
        step = "check"
    elif event == "os.rename" and str(arguments[1]).endswith("manifest.json"):
        step = "publish"
    else:
        return
    frames = [f"{{f.filename[len(loader):]}}:{{f.name}}" for f in traceback.extract_stack()
              if f.filename.startswith(loader)]
    if frames[:1] == ["torch_api/__init__.py:load"]:
        steps[step] = frames
sys.addaudithook(note)
jit_loader.load("tiny", {sources!r})
modules = [name.split(".")[1:2] for name in sys.modules if name.startswith("_jit_loader.")]
print(json.dumps([steps, sorted(sum(modules, []))]))
"""


def test_a_build_of_cpp_is_at_most_eight_calls_deep_and_imports_nothing_of_cuda(tiny, python):
    printed = python("-c", SCRIPT.format(sources=tiny.sources), check=True).stdout
    steps, modules = json.loads(printed)
    assert steps.keys() == {"compile", "check", "publish"}
    assert {step: frames for step, frames in steps.items() if len(frames[1:]) > 8} == {}
    assert {"build", "cache"} <= set(modules)
    assert {"cuda", "live", "raw"}.isdisjoint(modules)
