"""A CUDA graph that was captured before a reload says so when it is replayed."""

import gc
import warnings
import weakref

import pytest
import torch

from _jit_loader.reloading import graphs


class MadeUpGraph:
    replayed = 0

    def replay(self):
        self.replayed += 1

    def capture_begin(self):
        pass


@pytest.fixture
def graph(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", MadeUpGraph)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    return MadeUpGraph()


def test_stale_graph_says_so_once(graph):
    graphs.mark_stale({"add2"})
    graphs.mark_stale({"sigmoid", "add2"})
    with pytest.warns(graphs.StaleGraphWarning, match="add2, sigmoid: reloaded after this CUDA"):
        graph.replay()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.replay()
        MadeUpGraph().replay()
    assert graph.replayed == 2


def test_graph_that_is_captured_again_is_silent(graph):
    graphs.mark_stale({"add2"})
    graph.capture_begin()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.replay()


def test_graph_goes_with_its_last_user(graph):
    gc.disable()
    try:
        made_up = MadeUpGraph()
        graphs.mark_stale({"add2"})
        alive = weakref.ref(made_up)
        del made_up
        assert alive() is None
    finally:
        gc.enable()


def test_no_graph_is_looked_for_without_cuda(monkeypatch):
    monkeypatch.setattr(gc, "get_objects", None)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    graphs.mark_stale({"add2"})


@pytest.mark.gpu
def test_real_graph():
    x = torch.zeros(3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
    graphs.mark_stale({"add2"})
    with pytest.warns(graphs.StaleGraphWarning, match="Capture it again"):
        graph.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [1, 1, 1]
    graphs.mark_stale({"add2"})
    graph.reset()
    with torch.cuda.graph(graph):
        y = x + 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [2, 2, 2]
