"""Keeps the newest traces that come over OTLP, and tells them as Jaeger's query API does.

Only what a check asks for is read: ids, names, parents and services. Fields are numbered as in
opentelemetry/proto/trace/v1/trace.proto.
"""

import collections
import concurrent.futures
import http.server
import json
import threading
import urllib.parse

import grpc

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
MOST_TRACES = 1000

lock = threading.Lock()
traces = collections.OrderedDict()


def number(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data):
    """The fields of a message: numbers, and the bytes of those that have a length or are fixed."""
    at = 0
    while at < len(data):
        key, at = number(data, at)
        kind = key & 7
        if kind == 0:
            value, at = number(data, at)
        else:
            length, at = number(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value = data[at:at + length]
            at += length
        yield key >> 3, value


def first(data, wanted):
    return next((value for field, value in fields(data) if field == wanted), b"")


def every(data, wanted):
    return [value for field, value in fields(data) if field == wanted]


def service_of(resource):
    for attribute in every(resource, 1):
        if first(attribute, 1) == b"service.name":
            return first(first(attribute, 2), 1).decode()
    return "unknown"


def export(request, _context):
    for of_resource in every(request, 1):
        service = service_of(first(of_resource, 1))
        for of_scope in every(of_resource, 2):
            for span in every(of_scope, 2):
                keep(service, span)
    return b""


def keep(service, span):
    trace = first(span, 1).hex()
    parent = first(span, 4).hex()
    told = {
        "traceID": trace,
        "spanID": first(span, 2).hex(),
        "operationName": first(span, 5).decode(),
        "references": [{"refType": "CHILD_OF", "traceID": trace, "spanID": parent}] if parent else [],
        "processID": service,
    }
    with lock:
        traces.setdefault(trace, []).append(told)
        while len(traces) > MOST_TRACES:
            traces.popitem(last=False)


class Query(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked = urllib.parse.urlsplit(self.path)
        if asked.path != "/api/traces":
            return self.send_error(404)
        service = urllib.parse.parse_qs(asked.query).get("service", [""])[0]
        with lock:
            found = [
                {"traceID": trace, "spans": spans, "processes": processes(spans)}
                for trace, spans in traces.items()
                if any(span["processID"] == service for span in spans)
            ]
            body = json.dumps({"data": found}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def processes(spans):
    return {span["processID"]: {"serviceName": span["processID"]} for span in spans}


class Collector(grpc.GenericRpcHandler):
    def service(self, call):
        return grpc.unary_unary_rpc_method_handler(export) if call.method == EXPORT else None


server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=4))
server.add_generic_rpc_handlers((Collector(),))
server.add_insecure_port("0.0.0.0:4317")
server.start()
http.server.ThreadingHTTPServer(("0.0.0.0", 16686), Query).serve_forever()
