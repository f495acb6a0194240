"""A notebook whose cells are timed."""

import time

from benchmarks.worker import python_path


class Notebook:
    """A Jupyter kernel in which a cell has defined a function value()."""

    def __init__(self, folder, environment, setup):
        from jupyter_client.manager import KernelManager

        path = python_path(folder)
        self._manager = KernelManager()
        self._manager.start_kernel(cwd=str(folder), env={**environment, "PYTHONPATH": path})
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=120)
        self.run(setup)

    def run(self, code):
        """Runs a cell; returns its output and the seconds until the output is complete."""
        printed, seconds = "", None

        def take(message):
            nonlocal printed, seconds
            content = message["content"]
            if message["msg_type"] == "error":
                raise SystemExit("\n".join(content["traceback"]))
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                printed += content["text"]
                seconds = time.perf_counter() - started

        started = time.perf_counter()
        self._client.execute_interactive(code, output_hook=take, timeout=600)
        return printed, seconds

    def load(self):
        """Returns the time until the cell's value is printed, as the notebook's client sees it."""
        printed, seconds = self.run("print(value())")
        return {"seconds": seconds, "value": int(printed)}

    def close(self):
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
