"""Implements load_many: several calls of load or load_inline, each in a separate process."""

import contextlib
import json
import os

from _jit_loader import loading, this_process
from _jit_loader.cache.store import kernels_of
from _jit_loader.ops.builds import Outcome, build_all, precompile_for, precompiling_pays
from _jit_loader.system import is_set
from _jit_loader.system.jobs import memory_per_compiler, parallel_jobs
from _jit_loader.torch_api import load, load_inline


def load_many(calls, timeout, jobs):
    """Implements jit_loader.load_many; returns a list of Outcomes."""
    if any(not isinstance(call, dict) for call in calls):
        raise TypeError("each call must be a dict of the arguments of load or load_inline")
    for name, limit in (("timeout", timeout), ("jobs", jobs)):
        if limit is not None and not limit > 0:
            raise ValueError(f"{name}={limit!r}: it must be greater than 0")
    keys, outcomes, missing = [], {}, {}
    for call in calls:
        key, found = _look(call)
        keys.append(key)
        if found is None:
            missing.setdefault(key, call)
        else:
            outcomes[key] = found
    if missing:
        built = _build(list(missing.values()), timeout, jobs or parallel_jobs())
        outcomes |= dict(zip(missing, map(_load, missing.values(), built)))
    return [outcomes[key] for key in keys]


def _look(call):
    """Returns (key, Outcome) of a call; None for an Outcome that needs a build.

    Equal requests have equal keys. Raises nothing: an error is in the Outcome.
    """
    try:
        json.dumps(call, default=os.fspath)  # for another process
        this = _call_of(call)
    except Exception as error:
        return object(), Outcome(call.get("name"), error)
    # Without a Call, PyTorch itself has built it: see torch_api. If compiling is forbidden, this
    # process has the result or the error.
    if this is None or is_set("JIT_LOADER_NO_COMPILE") or loading.is_unchanged(this):
        return object(), _load(call)
    if "cpp_sources" not in call:  # a text is a candidate: it is built in a process, completely
        with contextlib.suppress(Exception):  # the process shows it
            loading.make(this, may_build=False)
            return object(), _load(call)
    return repr((this.kind, this.arguments)), None


def _call_of(call):
    """Returns the loading.Call of a dict."""
    return loading.call_of(call.get("name"), lambda: _load_of(call))


def _load_of(call):
    """Calls load or load_inline with a dict of arguments."""
    return (load_inline if "cpp_sources" in call else load)(**call)


def _load(call, built=None):
    """Loads a build of the cache in this process; returns its Outcome.

    built: the Outcome of the process that built it, if one did.
    """
    outcome = built or Outcome(call["name"])
    if outcome.error is not None:
        return outcome
    try:
        outcome.module = _load_of(call)
    except Exception as error:
        return Outcome(outcome.name, error, False, outcome.seconds)
    this = this_process.last.get(outcome.name)
    if this is None:  # it is PyTorch's
        return outcome
    outcome.compiled = outcome.compiled or this.compiled
    outcome.seconds = outcome.seconds or this.seconds
    if not this.compiled:  # those of a live edit are not known yet
        outcome.kernels = kernels_of(os.path.dirname(this.path))
    return outcome


def _build(calls, timeout, jobs):
    """Builds calls in processes; returns a list of Outcomes."""
    calls = json.loads(json.dumps(calls, default=os.fspath))  # paths become texts
    wanted = [(call["name"], f"{__name__}:build", [call], timeout) for call in calls]
    options = {"say_lines": False, "most_bytes": memory_per_compiler(jobs)}
    if precompiling_pays(len(calls), jobs):
        options["first"] = {"function": f"{__name__}:precompile_header", "arguments": calls[:1]}
    return build_all("load_many", "extension", wanted, jobs, **options)


def build(call):
    """Makes a call in one of the processes; returns a this_process.Loaded."""
    return loading.make(_call_of(call), verbose=call.get("verbose", False), may_be_live=False)


def precompile_header(call):
    """Precompiles the header that a call and others like it can use, in the first process."""
    precompile_for(lambda: _call_of(call))
