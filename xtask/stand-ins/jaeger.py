"""A minimal Jaeger: receives traces over OTLP and serves the newest ones through Jaeger's query API.

It reads ids, names, parents and services only. Field numbers are those of
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
MAX_TRACES = 1000

lock = threading.Lock()
traces = collections.OrderedDict()


def varint(data, offset):
    value = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7


def fields(data):
    """Yields field number and value of a message; varints as integers, other values as bytes."""
    offset = 0
    while offset < len(data):
        key, offset = varint(data, offset)
        wire_type = key & 7
        if wire_type == 0:
            value, offset = varint(data, offset)
        else:
            length, offset = varint(data, offset) if wire_type == 2 else ({1: 8, 5: 4}[wire_type], offset)
            value = data[offset:offset + length]
            offset += length
        yield key >> 3, value


def first(data, number):
    return next((value for field, value in fields(data) if field == number), b"")


def every(data, number):
    return [value for field, value in fields(data) if field == number]


def service_name(resource):
    for attribute in every(resource, 1):
        if first(attribute, 1) == b"service.name":
            return first(first(attribute, 2), 1).decode()
    return "unknown"


def export(request, _context):
    for resource_spans in every(request, 1):
        service = service_name(first(resource_spans, 1))
        for scope_spans in every(resource_spans, 2):
            for span in every(scope_spans, 2):
                store(service, span)
    return b""


def store(service, span):
    trace = first(span, 1).hex()
    parent = first(span, 4).hex()
    record = {
        "traceID": trace,
        "spanID": first(span, 2).hex(),
        "operationName": first(span, 5).decode(),
        "references": [{"refType": "CHILD_OF", "traceID": trace, "spanID": parent}] if parent else [],
        "processID": service,
    }
    with lock:
        traces.setdefault(trace, []).append(record)
        while len(traces) > MAX_TRACES:
            traces.popitem(last=False)


class Query(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path != "/api/traces":
            return self.send_error(404)
        service = urllib.parse.parse_qs(url.query).get("service", [""])[0]
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
