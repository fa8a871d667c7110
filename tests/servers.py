"""What the servers of several tests of places have in common: answers, and one that never ends."""

from http.server import BaseHTTPRequestHandler

_MIB = bytes(1 << 20)


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
