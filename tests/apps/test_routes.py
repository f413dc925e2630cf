"""The cold routes of a node: state, explanation, health, metrics, OpenAPI, and wrong paths."""

import json
import sys

from prometheus_client.parser import text_string_to_metric_families

from spillover.live.overflow.protocol import SIBLINGS, SPOKEN
from spillover.model.signals import node as signals
from spillover.model.signals.signal import Signal


async def test_decisions_are_explained(nodes):
    """By the request's name, whatever is in it; an unknown one is 404 with its reason."""
    async with nodes.alone("a", "b") as node:
        name = "orders/7 ü"
        await node.post({"service_ms": 1}, id=name)
        status, told = await node.get("/explain/orders/7%20%C3%BC")
        assert (status, told["id"], told["cluster"]) == (200, name, "a")
        (decision,) = told["decisions"]
        assert decision["outcome"] == "started"
        assert {"queue_length", "servers", "accept_probability", "draw"} <= set(decision)
        assert {"age_ms", "weight", "eligible"} <= set(decision["neighbors"][0])
        assert [record["event"] for record in told["story"]] == ["decided", "ended"]
        assert told["story"][0] == {
            "at_ms": 0.0,
            "event": "decided",
            "outcome": "started",
            "neighbor": None,
        }
        status, problem = await node.get("/explain/nothing")
        assert (status, problem["reason"]) == (404, "unknown_request")


async def test_metrics_tell_every_signal(nodes):
    """Prometheus can read them, each has the label `cluster`, and rates begin at zero."""
    async with nodes.alone("a", "b") as node:
        await node.post({"service_ms": 1})
        response = await node.client.request("GET", "/metrics", timeout_s=5)
        families = {f.name: f for f in text_string_to_metric_families(response.body.decode())}
        told = [value for value in vars(signals).values() if isinstance(value, Signal)]
        assert len(told) > 10
        for signal in told:
            family = families[signal.name.removesuffix("_total")]
            assert family.type == signal.kind
            assert family.samples or signal is signals.SPANS, signal.name  # those are of --otel
            for sample in family.samples:
                assert sample.labels["cluster"] == "a"
                assert {"cluster", *signal.labels} <= set(sample.labels)
        ends = {
            s.labels["outcome"]: s.value
            for s in families["spillover_requests"].samples
            if s.name.endswith("_total")
        }
        assert ends["done"] == 1
        assert ends["refused"] == ends["expired"] == 0
        if sys.platform == "linux":
            assert families["process_open_fds"].samples[0].value > 0
            assert families["process_resident_memory_bytes"].samples[0].value > 0


def all_routes(node):
    """(path as the OpenAPI writes it, method) of each, the hot ones too."""
    hot = node.server.config.app
    for path, (methods, _) in hot._routes.items():
        if path not in (SPOKEN[1].forward, SPOKEN[1].cancel, SPOKEN[1].reports, SIBLINGS):
            yield from ((path, method.lower()) for method in methods)
    yield "/requests/{request_id}", "get"
    for route in hot.cold.made().routes:
        if getattr(route, "include_in_schema", False):
            path = route.path.replace(":path}", "}")
            yield from ((path, method.lower()) for method in route.methods)


async def test_health_openapi_and_wrong_calls(nodes):
    """Probes answer, the description covers the hot path, and all else is a problem."""
    async with nodes.alone("a", "b") as node:
        assert await node.get("/healthz") == (200, {"status": "ok"})
        assert (await node.get("/readyz"))[0] == 200
        status, described = await node.get("/openapi.json")
        assert status == 200
        for path, method in all_routes(node):
            answers = described["paths"][path][method]["responses"]
            assert any(status.startswith(("1", "2")) for status in answers), path
            assert "HTTPValidationError" not in json.dumps(answers)
        text = json.dumps(described)
        names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
        assert names <= set(described["components"]["schemas"])
        for method, path, expected, allow in (
            ("GET", "/requests", 405, b"POST"),
            ("PUT", "/requests", 405, b"POST"),
            ("POST", "/state", 405, b"GET, HEAD"),
            ("PUT", "/requests/x", 405, b"GET, HEAD, DELETE"),
            ("GET", "/requests/", 404, None),
            ("POST", "/requests/", 404, None),
            ("POST", "/peer/v2/reports", 405, b"GET"),
            ("GET", "/nothing", 404, None),
            ("GET", "/nothing/", 404, None),
            ("GET", "/peer/v2/reports?from=z", 403, None),
            ("GET", "/peer/v2/reports?" + "&".join("x=1" for _ in range(20)), 422, None),
        ):
            status, headers, problem = await node.send(method, path)
            assert (status, problem["status"]) == (expected, expected), (method, path)
            assert headers[b"content-type"] == b"application/problem+json"
            assert headers.get(b"allow") == allow


async def test_the_root_leads_to_the_console(nodes):
    """Also behind a prefix: the way is relative."""
    async with nodes.alone("a", "b") as node:
        response = await node.client.request("GET", "/", timeout_s=nodes.LIMIT_S)
        assert (response.status, response.headers[b"location"]) == (307, b"console")
        head = (await node.talk(b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 307")
        assert b"\r\nlocation: console\r\n" in head
        status, _, problem = await node.send("POST", "/")
        assert (status, problem["reason"]) == (405, "method_not_allowed")


async def test_wrong_paths_name_the_ones_that_are_near(nodes):
    """In the detail of the problem; a path that is like none gets no such hint."""
    cases = {
        ("GET", "/request"): "did you mean /requests?",
        ("GET", "/requets/x"): "did you mean /requests/{request_id}?",
        ("GET", "/explian/x"): "did you mean /explain/{request_id}?",
        ("GET", "/metric"): "did you mean /metrics?",
        ("GET", "/state/"): "did you mean /state?",
        ("POST", "/drain"): "did you mean /admin/drain?",
        ("GET", "/nothing"): "Not Found",
        ("POST", "/admin/drian"): "did you mean /admin/drain?",
        ("GET", "/" + "x" * 5000): "Not Found",
        ("PUT", "/state"): "Method Not Allowed, expected GET, HEAD",
        **{
            (method, "/requests/"): "expected POST /requests, or GET or DELETE /requests/{id}"
            for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
        },
    }
    async with nodes.alone("a", "b") as node:
        for (method, path), told in cases.items():
            status, headers, problem = await node.send(method, path)
            assert status == (405 if "Method" in told else 404)
            assert headers[b"content-type"] == b"application/problem+json"
            assert problem["detail"].startswith(f"{method} {path}: ")
            assert problem["detail"].endswith(told), problem["detail"]
