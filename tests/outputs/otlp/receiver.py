"""A receiver on OpenTelemetry's own messages: PROTOCOL FOLDER [ANSWER]. Writes each request to
FOLDER/requests as a line of JSON, and its port to FOLDER/port.

ANSWER: partial (refuses two data points), busy (refuses the first request for a second), never.
"""

import gzip
import json
import os
import sys
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as messages

protocol, folder = sys.argv[1:3]
answer = sys.argv[3] if len(sys.argv) > 3 else ""
requests = 0


def record(request, headers):
    line = json.dumps({"headers": headers, "request": MessageToDict(request)})
    with open(f"{folder}/requests", "a") as out:
        out.write(line + "\n")


def response():
    if answer != "partial":
        return messages.ExportMetricsServiceResponse()
    partial = messages.ExportMetricsPartialSuccess(rejected_data_points=2, error_message="not these")
    return messages.ExportMetricsServiceResponse(partial_success=partial)


def is_refused():
    global requests
    requests += 1
    return answer == "never" or (answer == "busy" and requests == 1)


def publish(port):
    with open(f"{folder}/port.tmp", "w") as out:
        out.write(str(port))
    os.rename(f"{folder}/port.tmp", f"{folder}/port")


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if is_refused():
            self.send_response(503)
            self.send_header("Retry-After", "1")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        record(messages.ExportMetricsServiceRequest.FromString(body), dict(self.headers, path=self.path))
        text = response().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


if protocol == "http":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    publish(server.server_address[1])
    server.serve_forever()
else:
    import grpc
    from google.protobuf.any_pb2 import Any
    from google.protobuf.duration_pb2 import Duration
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service

    class Servicer(service.MetricsServiceServicer):
        def Export(self, request, context):
            if is_refused():
                detail = Any()
                detail.Pack(RetryInfo(retry_delay=Duration(seconds=1)))
                status = Status(code=8, message="busy", details=[detail]).SerializeToString()
                context.set_trailing_metadata((("grpc-status-details-bin", status),))
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")
            record(request, dict(context.invocation_metadata()))
            return response()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    service.add_MetricsServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    publish(port)
    server.wait_for_termination()
