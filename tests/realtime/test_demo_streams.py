"""`spillover demo streams`: a site dies in mid-stream, and what its users see of it."""


def test_the_dead_sites_streams_break_off_and_all_others_go_on(spillover):
    """With an error, never as if they were whole; who comes afterwards is served elsewhere."""
    demo = spillover("demo", "streams", "--json")
    result = demo.result(120.0)
    demo.nothing_left()
    assert result["problems"] == []
    assert result["ledgers_balanced"] is True
    assert result["dead_site"]["error"] >= 5, "three came in there, and others ran there"
    assert result["others"]["whole"] >= 9
    assert result["after"]["whole"] == 6
    assert result["streams"] == 24
    for group in ("dead_site", "others", "after"):
        assert result[group]["short"] == result[group]["refused"] == 0
