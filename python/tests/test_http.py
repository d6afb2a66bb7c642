#!/usr/bin/env python3
"""Groups whose folder lies on a web server: one that does what it should, and others that do not. No torch is needed."""

import calendar
import concurrent.futures
import ctypes
import hashlib
import hmac
import http.server
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
from unittest import mock

import ranks
import thinwire

LARGE = 3 << 20
SECRET = "a-secret-word"


class Handler(http.server.BaseHTTPRequestHandler):
    """Keeps what is put in a dictionary of the server's, whose `answer` may do something else first."""

    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def log_message(self, *what):
        pass

    def say(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in {"Content_Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def serve(self, act):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            self.server.asked.append((self.command, self.path, dict(self.headers)))
        if not self.server.answer(self, self.command, self.path):
            act(body)

    def do_PUT(self):
        self.serve(self.put)

    def do_GET(self):
        self.serve(self.get)

    def do_DELETE(self):
        self.serve(self.delete)

    def put(self, body):
        with self.server.lock:
            self.server.files[self.path] = body
        self.say(201, b"it is here")

    def get(self, _):
        with self.server.lock:
            body = self.server.files.get(self.path)
        self.say(404, b"it is not here") if body is None else self.say(200, body)

    def delete(self, _):
        with self.server.lock:
            self.server.files.pop(self.path, None)
        self.say(204)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer=lambda handler, method, path: False):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.files, self.asked, self.lock, self.connections = answer, {}, [], threading.Lock(), 0
        self.place = f"127.0.0.1:{self.server_port}/a/run"
        self.url = f"http://{self.place}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *what):
        self.shutdown()
        super().__exit__(*what)

    def handle_error(self, *what):  # who is hung up on
        pass

    def count(self, method, name):
        return sum(asked[0] == method and asked[1].split("?")[0].endswith(name) for asked in self.asked)


def met(url, rank, size=2, act=lambda comm: comm.barrier()):
    with thinwire.Comm.folder(url, size, rank, ranks.SECONDS) as comm:
        return act(comm)


def both(url, act=lambda comm: comm.barrier()):
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        members = [threads.submit(met, url, rank, act=act) for rank in range(2)]
        return [member.result() for member in members]


KEYS = {"AWS_ACCESS_KEY_ID": f"id-{SECRET}", "AWS_SECRET_ACCESS_KEY": f"{SECRET}/with+signs=", "AWS_REGION": "eu-north-1",
        "AWS_SESSION_TOKEN": f"token-{SECRET}=="}


def what_is_wrong(method, path, headers):
    """With a request by Amazon's signature, version 4, or nothing. What is signed has to be all that says what is asked.
    Of a path it is what S3 makes of it: all but a few characters written as %XX."""
    found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=(.*?)/(\d{8}/.*), ?SignedHeaders=(.*), ?Signature=([0-9a-f]{64})",
                         headers.get("Authorization", ""))
    if not found:
        return "nothing is signed"
    identity, scope, names, signature = found.groups()
    day, moment = scope.split("/")[0], headers["x-amz-date"]
    if (identity, scope) != (KEYS["AWS_ACCESS_KEY_ID"], f"{moment[:8]}/{KEYS['AWS_REGION']}/s3/aws4_request"):
        return "scope"
    if headers.get("x-amz-security-token") != KEYS["AWS_SESSION_TOKEN"]:
        return "token"
    if not {"host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"} <= set(names.split(";")):
        return "too little is signed"
    age = time.time() - calendar.timegm(time.strptime(moment, "%Y%m%dT%H%M%SZ"))
    if not -60 < age < 900:
        return "time"
    lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in sorted(names.split(";")))
    path = urllib.parse.quote(urllib.parse.unquote_to_bytes(path), safe="/-._~")
    request = "\n".join([method, path, "", lines, names, headers["x-amz-content-sha256"]])
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = ("AWS4" + KEYS["AWS_SECRET_ACCESS_KEY"]).encode()
    for part in (day, KEYS["AWS_REGION"], "s3", "aws4_request", text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return None if hmac.compare_digest(key.hex(), signature) else "signature"


OTHER_LIBCURL = """
#define NOTHING(name) int curl_##name(void) { return 0; }
NOTHING(global_init) NOTHING(easy_perform) NOTHING(easy_getinfo) NOTHING(easy_reset) NOTHING(easy_cleanup) NOTHING(slist_free_all)
static struct { int age; const char *version; unsigned number; } about = {0, "a libcurl of this test's", NUMBER};
void *curl_version_info(int age) { (void)age; return &about; }
void *curl_easy_init(void) { return &about; }
void *curl_slist_append(void *list, const char *text) { (void)list, (void)text; return &about; }
const char *curl_easy_strerror(int code) { (void)code; return "it does nothing"; }
int curl_easy_setopt(void *one, int option, ...) { (void)one; return option == 10305 && !SIGNS ? 48 : 0; }
"""


def takes_what_is_signed(handler, method, path):
    wrong = what_is_wrong(method, path, handler.headers)
    with handler.server.lock:
        handler.server.wrong.append(wrong)
    return wrong and (handler.say(403) or True)


def what_is_missing():
    """Why no folder can lie on a web server here, or nothing."""
    said = ranks.refused(lambda: thinwire.Comm.folder("http://127.0.0.1:1/", 1, 0, 0.1))
    return said if "libcurl" in said else ""


class HttpTest(unittest.TestCase):
    def refused(self, url, size=2, seconds=0.3):
        with self.assertRaises(thinwire.Error) as error:
            thinwire.Comm.folder(url, size, 0, seconds)
        self.assertNotIn(SECRET, str(error.exception))
        return str(error.exception)

    def served(self):
        """A server until the end of the test, which does something else from time to time."""
        server = Server()
        self.addCleanup(server.__exit__)
        return server

    def test_messages_are_put_got_and_deleted(self):
        said = [bytes([65 + rank]) * LARGE for rank in range(2)]
        with Server() as server:
            self.assertEqual(both(server.url + "/", lambda comm: comm.allgather(said[comm.rank])), [said, said])
            self.assertEqual(sorted(server.files), [f"/a/run/{name}" for name in ("gone-0", "gone-1", "hello-0", "hello-1")])
            both(server.url)  # a second run in the same place

    def test_a_message_for_which_there_is_no_room(self):
        def told(comm):
            room = ctypes.create_string_buffer(LARGE if comm.rank == 0 else 100)
            return ranks.refused(lambda: comm.broadcast(0, ctypes.addressof(room), len(room)))

        def in_chunks(handler, method, path):
            body = method == "GET" and "/m-" in path and handler.server.files.get(path)
            if not body:
                return False
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            handler.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
            return True
        for answer in (lambda *asked: False, in_chunks):
            with self.subTest(answer), Server(answer) as server:
                self.assertRegex(both(server.url, told)[1], "rank 0 sent a message of [0-9]+ bytes, for which there is no room")

    def test_what_is_secret_goes_with_every_request_and_into_no_text(self):
        def answer(handler, method, path):
            right = handler.headers.get("Authorization") == f"Bearer {SECRET}" and handler.headers.get("X-More") == "1"
            return None if right and path.endswith(f"?sig={SECRET}") else handler.say(401) or True
        with Server(answer) as server, mock.patch.dict(os.environ):
            url = f"{server.url}?sig={SECRET}"
            os.environ["THINWIRE_HTTP_HEADERS"] = f"Authorization: Bearer {SECRET}\nX-More: 1\n"
            both(url)
            os.environ["THINWIRE_HTTP_HEADERS"] = f"Authorization: Bearer {SECRET}, not quite"
            told = f"{server.url}/hello-0 cannot be written: the server answers 401, as to one without the right to"
            self.assertEqual(self.refused(url), told)
            del os.environ["THINWIRE_HTTP_HEADERS"]
            self.assertEqual(self.refused(f"http://{SECRET}:{SECRET}@{server.place}"), told)

    def test_requests_are_signed_as_s3_wants_it(self):
        """By the published rule, worked out again here. A key, a region or a token that is another is refused, and told to nobody."""
        with Server(takes_what_is_signed) as server, mock.patch.dict(os.environ, KEYS):
            server.wrong, said = [], [bytes([65 + rank]) * LARGE for rank in range(2)]
            url = f"s3+{server.url}"
            self.assertEqual(both(url + "/", lambda comm: comm.allgather(said[comm.rank])), [said, said])
            self.assertEqual(set(server.wrong), {None})
            self.assertEqual({asked[0] for asked in server.asked}, {"PUT", "GET", "DELETE"})
            for name, wrong in (("AWS_SECRET_ACCESS_KEY", "signature"), ("AWS_ACCESS_KEY_ID", "scope"), ("AWS_REGION", "scope"),
                                ("AWS_SESSION_TOKEN", "token")):
                with self.subTest(name), mock.patch.dict(os.environ, {name: "a" + KEYS[name]}):
                    server.wrong.clear()
                    self.assertEqual(self.refused(url), f"{server.url}/hello-0 cannot be written: the server answers 403, as to one "
                                     "without the right to")
                    self.assertEqual(server.wrong, [wrong])
            del os.environ["AWS_REGION"]
            os.environ["AWS_DEFAULT_REGION"] = KEYS["AWS_REGION"]
            both(url)
            server.wrong.clear()
            self.assertIn("403", self.refused(server.url))  # nothing is signed where nobody asked for it
            self.assertEqual(server.wrong, ["nothing is signed"])

    def test_a_path_is_signed_as_s3_reads_it(self):
        """However it is written: S3 works the signature out anew from the name that it reads."""
        with Server(takes_what_is_signed) as server, mock.patch.dict(os.environ, KEYS):
            server.wrong = []
            for name in ("a+b=c(1)", "%7Emine,*", "%c3%a4%20%2Bb", "50%", "a%2Fb%zz"):
                with self.subTest(name):
                    server.wrong.clear()
                    both(f"s3+{server.url}/{name}")
                    self.assertEqual(set(server.wrong), {None})
                    self.assertEqual({urllib.parse.unquote(asked[1]).rsplit("/", 1)[0] for asked in server.asked},
                                     {f"/a/run/{urllib.parse.unquote(name)}"})
                    server.asked.clear()

    def test_a_store_that_refuses_is_understood(self):
        """As Amazon's and those that behave as it does say it, and what would be right. What else they say is not repeated."""
        region = "400 AuthorizationHeaderMalformed: the bucket is in the region eu-west-1, so write that into AWS_REGION"
        date = "Fri, 27 Nov 2026 12:00:00 GMT"
        server = self.served()
        for code, name, more, headers, told in (
                (404, "NoSuchBucket", "", {}, "404 NoSuchBucket: there is no such bucket, so make it first"),
                (403, "InvalidAccessKeyId", "", {}, "403 InvalidAccessKeyId: .* AWS_ACCESS_KEY_ID"),
                (403, "SignatureDoesNotMatch", "", {}, "403 SignatureDoesNotMatch: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are no pair"),
                (400, "MalformedXML", "", {}, "400 MalformedXML: the URL may lack a bucket"),
                (400, "ExpiredToken", "", {}, "400 ExpiredToken: .* AWS_SESSION_TOKEN has expired"),
                (400, "InvalidToken", "", {}, "400 InvalidToken: AWS_SESSION_TOKEN is not"),
                (403, "AccessDenied", "", {}, "403 AccessDenied, as to one without the right to"),
                (403, "RequestTimeTooSkewed", "", {"Date": date}, f"403 RequestTimeTooSkewed: set the clock of this machine, .* {date}"),
                (400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>", {}, region),
                (301, "PermanentRedirect", "", {"x-amz-bucket-region": "eu-west-1"}, "301 PermanentRedirect: .* region eu-west-1"),
                (400, "Whatever", "", {}, "400 Whatever$"),
                (400, "no<word", "", {}, "400 no$"), (418, "a" * 5000, "", {}, "418 a{63}$"), (400, "\x1b]0;\n", "", {}, "400$")):
            said = f"<?xml version='1.0'?>\n<Error><Code>{name}</Code>{more}<AWSAccessKeyId>{SECRET}</AWSAccessKeyId></Error>"
            for refused in ("PUT", "GET"):
                with self.subTest(name, refused=refused):
                    server.asked.clear()
                    server.answer = lambda handler, method, path: method == refused and (handler.say(code, said.encode(), **headers) or True)
                    self.assertRegex(self.refused(server.url), f"the server answers {told if refused == 'PUT' else told.rstrip('$')}")
                    self.assertEqual(server.count("PUT", "hello-0"), 1)

    def test_a_web_server_that_refuses_is_understood(self):
        server = self.served()
        for code, told in ((404, "make the folder first"), (409, "make it first"), (405, "as where nobody may write files"),
                           (413, "raise its limit"), (500, "its own log says why"), (507, "full")):
            with self.subTest(code):
                server.answer = lambda handler, *asked: handler.say(code) or True
                self.assertRegex(self.refused(server.url), f"the server answers {code}.*{told}")

    def test_who_looks_keeps_the_connection(self):
        """A file that has not come costs one question, and no new connection."""
        with Server() as server:
            self.assertIn("did not come", self.refused(server.url, seconds=5))
            self.assertGreater(server.count("GET", "hello-1"), 3)
            self.assertEqual(server.connections, 1)

    @unittest.skipUnless(shutil.which("openssl"), "no program openssl, which makes a certificate")
    def test_whom_a_server_is_trusted_by(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ):
            own = f"{folder}/own.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", own,
                            "-out", f"{folder}/cert.pem", "-days", "2", "-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1"],
                           check=True, capture_output=True)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(f"{folder}/cert.pem", own)
            with Server() as server:
                url = server.url.replace("http:", "https:")
                self.assertRegex(self.refused(url), "no TLS can be agreed on, as where the server wants http://$")
            with Server() as server:
                server.socket = context.wrap_socket(server.socket, server_side=True)
                url = server.url.replace("http:", "https:")
                os.environ.pop("SSL_CERT_FILE", None)
                self.assertRegex(self.refused(url), "cannot be written: nobody whom this machine trusts .*SSL_CERT_FILE")
                os.environ["SSL_CERT_FILE"] = f"{folder}/none.pem"
                self.assertRegex(self.refused(url), "SSL_CERT_FILE names has no certificates")
                os.environ["SSL_CERT_FILE"] = f"{folder}/cert.pem"
                both(url)

    def test_what_signing_lacks_is_named(self):
        with mock.patch.dict(os.environ, KEYS):
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
                with self.subTest(name), mock.patch.dict(os.environ, {name: ""}):
                    self.assertRegex(self.refused("s3+https://127.0.0.1:1/x"), f"begins with s3. needs {name}.* in the environment$")
            for url in (f"s3+https://me:{SECRET}@127.0.0.1:1/x", f"s3+https://127.0.0.1:1/x?key={SECRET}"):
                self.assertIn("has no ? and no @", self.refused(url))

    def test_a_libcurl_that_cannot_sign_is_refused(self):
        """It is too old, or was built without. It would take the key for a password, and send it."""
        with tempfile.TemporaryDirectory() as folder:
            for number, signs in ((0x075700, 1), (0x075800, 0)):
                with self.subTest(number=number, signs=signs):
                    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", f"-DNUMBER={number}", f"-DSIGNS={signs}", "-o",
                                    f"{folder}/libcurl.so.4"], input=OTHER_LIBCURL, text=True, check=True)
                    ended = subprocess.run([sys.executable, "-c", "import thinwire; thinwire.Comm.folder('s3+https://127.0.0.1:1/x', 2, 0, 0.1)"],
                                           env={**os.environ, **KEYS, "PYTHONPATH": os.pathsep.join(sys.path), "LD_LIBRARY_PATH": folder},
                                           capture_output=True, text=True, timeout=ranks.SECONDS)
                    self.assertRegex(ended.stderr, "needs libcurl 7.88 or later.*this machine has a libcurl of this test's")

    def test_a_server_that_fails_now_and_then(self):
        counts = {}

        def answer(handler, method, path):
            counts[method, path] = counts.get((method, path), 0) + 1
            return handler.say(503) or True if counts[method, path] < 3 else None
        with Server(answer) as server:
            both(server.url)

    def test_a_server_that_is_begun_anew_is_waited_for(self):
        """For longer than one that has never taken a file: what is on its way is not lost with it."""
        counts = {}

        def answer(handler, method, path):
            counts[method, path] = counts.get((method, path), 0) + 1
            handler.close_connection = "/m-" in path and method == "PUT" and counts[method, path] < 8
            return handler.close_connection
        with Server(answer) as server:
            both(server.url)
            self.assertEqual(max(counts["PUT", path] for method, path in counts if "/m-" in path and method == "PUT"), 8)

    def test_a_server_that_is_full_is_not_waited_for(self):
        with Server(lambda handler, method, path: method == "PUT" and "/m-" in path and (handler.say(507) or True)) as server:
            with self.assertRaisesRegex(thinwire.Error, "the server answers 507"):
                both(server.url)
            self.assertEqual(max(server.count("PUT", name) for name in ("m-0-1-0-0", "m-1-0-0-0")), 6)

    def test_a_store_that_was_sent_too_slowly_is_asked_again(self):
        counts = []

        def answer(handler, method, path):
            counts.append(method)
            return counts.count("PUT") == 1 and (handler.say(400, b"<Error><Code>RequestTimeout</Code></Error>") or True)
        with Server(answer) as server:
            both(server.url)

    def test_a_server_that_always_fails(self):
        with Server(lambda handler, method, path: handler.say(500, b"x" * 1000) or True) as server:
            self.assertIn("/hello-0 cannot be written: the server answers 500", self.refused(server.url))
            self.assertEqual(server.count("PUT", "hello-0"), 6)
        with Server(lambda handler, method, path: method == "GET" and (handler.say(503) or True)) as server:
            self.assertRegex(self.refused(server.url), "rank 0 of 2 did not come .* seconds .the server answers 503.$")
        self.assertRegex(self.refused(server.url), "hello-0 cannot be written: .*connect")  # nobody is there any more

    def test_a_server_that_stands_still_is_waited_for_as_long_as_told(self):
        """Each request is let go of after two seconds at least; at thirty, this would take minutes."""
        for method, name in (("PUT", "hello-0"), ("GET", "hello-1")):
            with self.subTest(method):
                over = threading.Event()
                silent = lambda handler, asked, path: (asked, path[-7:]) == (method, name) and (over.wait(ranks.SECONDS) or True)
                with Server(silent) as server:
                    self.assertRegex(self.refused(server.url), "imeout|did not come")
                    self.assertLessEqual(server.count(method, name), 2)
                    self.assertFalse(over.is_set())
                    over.set()

    def test_a_server_that_removes_nothing_is_told_of_once(self):
        refuses = lambda handler, method, path: method == "DELETE" and (handler.say(405) or True)
        with Server(refuses) as server, self.assertLogs("thinwire", "WARNING") as told:
            both(server.url, lambda comm: [comm.barrier() for _ in range(3)])
        self.assertEqual(len(told.output), 2)  # by each of the two
        for line in told.output:
            self.assertIn("the web server answers 405 to DELETE", line)

    def test_nobody_is_sent_elsewhere(self):
        with Server() as other:
            elsewhere = lambda handler, method, path: handler.say(302, Location=other.url) or True
            with Server(elsewhere) as server:
                self.assertIn("answers 302 and wants to send this process elsewhere", self.refused(server.url))
            self.assertEqual(other.asked, [])

    def test_bodies_that_cannot_be(self):
        """What rank 1 seems to have said has not come: rank 0 goes on waiting, takes no more than fits, and ends."""
        def too_short(handler):
            handler.say(200, b"TWF1", Content_Length=1000)
            handler.close_connection = True

        def endless(handler):
            handler.say(200, Content_Length=1 << 40)
            while True:
                handler.wfile.write(b"TWF1" * 10000)

        def endless_chunks(handler):
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            while True:
                handler.wfile.write(b"8\r\nTWF1TWF1\r\n" * 1000)

        def endless_redirect(handler):
            handler.say(302, Location="/", Content_Length=1 << 40)
            while True:
                handler.wfile.write(b"elsewhere" * 10000)

        def nothing(handler):
            handler.say(200)

        def noise(handler):
            handler.say(200, os.urandom(48))

        for body in (too_short, endless, endless_chunks, endless_redirect, nothing, noise):
            with self.subTest(body.__name__):
                is_bad = lambda handler, method, path: method == "GET" and path.endswith("hello-1") and (body(handler) or True)
                with Server(is_bad) as server:
                    self.assertIn("rank 1 of 2 did not come", self.refused(server.url))
        with Server(lambda handler, method, path: method == "PUT" and (endless(handler) or True)) as server:
            self.assertIn("cannot be written: the server answers and does not end", self.refused(server.url))

    def test_a_password_that_looks_like_a_path_is_refused_and_not_shown(self):
        for url in (f"http://user:pa/{SECRET}@127.0.0.1:1/x", f"http://user:pa?{SECRET}@127.0.0.1:1/x"):
            with self.subTest(url):
                self.assertIn("write these two in a password as %2F and %3F", self.refused(url))

    def test_urls_that_cannot_be(self):
        for url in ("http://", "https:///run", "http://host/a b", "http://host/#here", "http://host/\u00e4"):
            with self.subTest(url):
                self.assertIn("want http://HOST/PATH", self.refused(url))


if __name__ == "__main__":
    if what_is_missing():
        print("skipped:", what_is_missing())
        sys.exit(77)
    unittest.main()
