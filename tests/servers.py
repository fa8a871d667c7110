"""What the servers of several tests have in common: how they run, answers, and one that never ends."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MIB = bytes(1 << 20)


class Server(ThreadingHTTPServer):
    """A server on this machine that answers inside ``with``; clients may close connections as they like."""

    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        # It looks often whether it shall end, as each test waits for its end.
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        pass


class Answers(BaseHTTPRequestHandler):
    """A handler that says nothing to the terminal; requests for heads are those for the whole, without a body."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet

    def log_message(self, *given):
        pass

    def do_HEAD(self):
        self.do_GET()

    def answer(self, status, data, heads):
        """The whole answer."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **heads}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def endless(self, status, heads):
        """An answer until the client closes the connection."""
        self.send_response(status)
        for name, value in heads.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        while True:
            self.wfile.write(_MIB)
