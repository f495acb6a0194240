def test_gradcheck_fails_in_float32_with_a_small_step(call_example, capsys):
    call_example("gradcheck_sigmoid", "--device", "cpu")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["float32", "0.0001", "fails", "fails"] in lines
    assert sum(line[2:] == ["passes", "passes"] for line in lines) == 3
