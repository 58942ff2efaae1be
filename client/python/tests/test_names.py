"""The names of requests and httpx: each works, or is refused with what to use instead. The names are
those of their documentation: docs/api.rst of psf/requests and docs/api.md of encode/httpx."""

import base64
import inspect
import io
import json
import pathlib
import unittest

import fetchd
from fetchd import _foreign
from rig import AT_ONCE, Blocking, Case

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


class Pieces(io.RawIOBase):
    """A file that returns a byte at a time."""

    def __init__(self, content):
        self.content = list(content)

    def readable(self):
        return True

    def readinto(self, buffer):
        piece, self.content = self.content[:1], self.content[1:]
        buffer[: len(piece)] = bytes(piece)
        return len(piece)


class Works:
    """The checks of the names that work, by the row of README.md."""

    def __init__(self, case):
        self.case, self.client = case, case.client

    def echo(self, url="", client=None, method="GET", **options):
        """Returns what the origin has received, with the header names in lower case."""
        got = (client or self.client).request(method, url or self.case.url("echo", "200:echo"), timeout=60, **options).json()
        return got, {h["name"].lower(): h["value"] for h in got["headers"]}

    def methods(self):
        for name in "get", "post", "put", "patch", "delete", "options":
            got = getattr(self.client, name)(self.case.url(name, "200:echo"), timeout=60).json()
            self.case.assertEqual(got["method"], name.upper())
        self.case.assertEqual(self.client.request("put", self.case.url("request", "200:echo"), timeout=60).json()["method"], "PUT")
        head = self.client.head(self.case.url("head", "200:size=3"), timeout=60)
        self.case.assertEqual((head.status_code, head.headers["content-length"], head.content), (200, "3", b""))

    def stream(self):
        with self.client.stream("GET", self.case.url("stream", "200:size=20000000"), timeout=60) as response:
            self.case.assertEqual(sum(map(len, response.iter_bytes())), 20000000)
        with self.client.stream("GET", self.case.url("limited", "200:size=11"), timeout=60, body_policy={"max_size_bytes": 10}) as response:
            self.case.assertEqual(response.error.error_class, "body_too_large")

    def params(self):
        self.client.get(self.case.url("params", "200"), timeout=60, params={"a": [1, None, 2], "b": "x y", "c": None})
        self.case.assertEqual(self.case.seen("params")[0]["query"], "a=1&a=2&b=x+y")
        for i, params in enumerate(["a=1&b=x%20y&c", b"a=1&b=x+y&c=", [("a", 1), ("b", "x y"), ("c", "")]]):
            self.client.get(self.case.url(f"params{i}", "200"), timeout=60, params=params)
            self.case.assertEqual(self.case.seen(f"params{i}")[0]["query"], "a=1&b=x+y&c=")
        for i, params in enumerate(["a=%E9", b"a=\xe9"]):
            self.client.get(self.case.url(f"latin{i}", "200"), timeout=60, params=params)
            self.case.assertEqual(self.case.seen(f"latin{i}")[0]["query"], "a=%E9")

    def bodies(self):
        for options, kind, size in [
            ({"data": {"a": ["1", None], "b": None}}, "application/x-www-form-urlencoded", 3),
            ({"data": "raw"}, None, 3),
            ({"content": b"raw!"}, None, 4),
            ({"content": io.BytesIO(b"raw!")}, None, 4),
            ({"data": io.StringIO("r\u00e4w")}, None, 4),
            ({"content": Pieces(b"raw!")}, None, 4),
            ({"json": {"a": 1}}, "application/json", 7),
        ]:
            got, headers = self.echo(method="POST", **options)
            self.case.assertEqual((headers.get("content-type"), got["body_bytes"]), (kind, size))

    def headers(self):
        self.case.assertEqual(self.echo(headers={"X-A": "1", "X-B": None})[1].get("x-a"), "1")

    def cookies(self):
        self.case.assertEqual(self.echo(cookies={"a": "1", "b": "2"})[1]["cookie"], "a=1; b=2")
        got = self.client.get(self.case.url("cookies", "200:set-cookie=a%3D%22x%22%3B%20Path%3D%2F,set-cookie2=b%3D2"), timeout=60)
        self.case.assertEqual(got.cookies, {"a": "x", "b": "2"})

    def auth(self):
        self.case.assertEqual(self.echo(auth=("user", "pä:ss"))[1]["authorization"], "Basic " + base64.b64encode("user:pä:ss".encode()).decode())

    def timeout(self):
        self.case.assertEqual(self.client.get(self.case.url("timeout", "silent"), timeout=0.5).error.error_class, "deadline")
        for timeout in (5, 30), {"connect": 5}:
            with self.case.assertRaisesRegex(TypeError, 'timeout_policy={"connect_timeout": 5, "idle_timeout": 30}'):
                self.client.get(self.case.url("timeout", "silent"), timeout=timeout)

    def client_defaults(self):
        with self.case.kind(
            self.case.service.target,
            base_url=self.case.url("base", ""),
            headers={"X-A": "1", "X-B": "2", "Authorization": "none"},
            params={"a": "1", "b": "2"},
            cookies={"c": "1"},
            auth=None,
            timeout=60,
            redirect_policy={"follow": False},
        ) as client:
            url = "/200:echo"
            got, headers = self.echo(url, client, headers={"x-b": "3"}, params={"b": 3}, cookies={"d": "2"}, auth=("u", "p"))
            self.case.assertEqual([headers[name] for name in ("x-a", "x-b", "cookie")], ["1", "3", "c=1; d=2"])
            self.case.assertTrue(headers["authorization"].startswith("Basic "))
            self.case.assertEqual(self.case.seen("base")[0]["query"], "a=1&b=3")
            self.echo(self.case.url("query", "200:echo"), client, params="b=4&c=")
            self.case.assertEqual(self.case.seen("query")[0]["query"], "a=1&b=4&c=")
            client.headers.update({"X-A": "4"})
            self.case.assertEqual(self.echo(url, client, headers={"X-B": None})[1].get("x-a"), "4")
            self.case.assertNotIn("x-b", self.echo(url, client, headers={"X-B": None})[1])
            self.case.assertEqual(self.echo(self.case.url("absolute", "200:echo"), client)[1]["authorization"], "none")
            self.case.assertEqual([r.response.json()["method"] for r in client.fetch_many([{"url": url, "method": "PUT"}])], ["PUT"])
            self.case.assertEqual(client.get(self.case.redirect("302"), timeout=60).kind, "redirect")
            with client.stream("GET", url) as response:
                self.case.assertIn(b'"X-A"', response.read())

    def clients(self):
        for kind in fetchd.Client, fetchd.AsyncClient:
            with self.case.assertRaisesRegex(TypeError, "'target'"):
                kind()

    def close(self):
        client = self.case.kind(self.case.service.target)
        self.case.assertEqual(client.get(self.case.url("close", "200"), timeout=60).status_code, 200)
        client.close()
        self.case.assertIs(fetchd.AsyncClient.aclose, fetchd.AsyncClient.close)

    def simple(self):
        got = self.client.get(self.case.url("simple", "404:body=no,header=Link=%3Chttp:%2F%2Fo.example%2F2%3E%3B%20rel%3D%22next%22"), timeout=60)
        self.case.assertEqual((got.status_code, got.reason_phrase, got.reason, got.http_version), (404, "Not Found", "Not Found", "HTTP/1.1"))
        self.case.assertEqual((got.is_success, got.is_error, got.is_redirect, got.ok), (False, True, False, False))
        self.case.assertEqual((got.content, got.read(), got.text, got.headers["LINK"][:1]), (b"no", b"no", "no", "<"))
        self.case.assertEqual(got.links, {"next": {"url": "http://o.example/2", "rel": "next"}})
        self.case.assertGreater(got.elapsed.total_seconds(), 0)
        self.case.assertTrue(got.url.endswith("rel%3D%22next%22"), got.url)

    def raise_for_status(self):
        ok = self.client.get(self.case.url("ok", "200"), timeout=60)
        self.case.assertIs(ok.raise_for_status(), ok)
        self.case.assertTrue(ok)
        for steps in "404", "503":
            self.case.assertFalse(self.client.get(self.case.url(f"{steps}-whole", steps), timeout=60, **AT_ONCE))
            with self.client.stream("GET", self.case.url(f"{steps}-stream", steps), timeout=60, **AT_ONCE) as streamed:
                self.case.assertFalse(getattr(streamed, "_got", streamed))
        for name, url in ("404", self.case.url("404", "404")), ("refused", self.case.origin.listeners["refused"]):
            with self.case.assertRaises(fetchd.FetchError):
                self.client.get(url, timeout=60, **AT_ONCE).raise_for_status()

    def json(self):
        self.case.assertEqual(self.client.get(self.case.url("json", "200:body=[1]"), timeout=60).json(), [1])
        with self.case.assertRaises(json.JSONDecodeError):
            self.client.get(self.case.url("text", "200:body=no"), timeout=60).json()

    def encoding(self):
        got = self.client.get(self.case.url("encoding", "200:body=%E4"), timeout=60)
        self.case.assertEqual((got.encoding, got.text), ("utf-8", "\ufffd"))
        got.encoding = "latin-1"
        self.case.assertEqual((got.encoding, got.text), ("latin-1", "ä"))

    def history(self):
        first = self.case.redirect("302")
        got = self.client.get(first, timeout=60)
        self.case.assertEqual(([(r.status_code, r.url, r.is_redirect) for r in got.history], got.is_redirect), ([(302, first, True)], False))
        self.case.assertTrue(got.history[0].headers["location"].startswith(got.url))

    def iterators(self):
        body, steps = "a\r\nbö\nc", "200:body=a%0D%0Ab%C3%B6%0Ac"
        with self.client.stream("GET", self.case.url("lines", steps), timeout=60) as streamed:
            self.case.assertEqual(list(streamed.iter_lines()), ["a", "bö", "c"])
        with self.client.stream("GET", self.case.url("bytes", steps), timeout=60) as streamed:
            self.case.assertEqual(list(streamed.iter_content(4)), [b"a\r\nb", "ö\nc".encode()])
        with self.client.stream("GET", self.case.url("text", steps), timeout=60) as streamed:
            self.case.assertEqual("".join(streamed.iter_text()), body)
        got = self.client.get(self.case.url("whole", steps), timeout=60)
        self.case.assertEqual((list(got.iter_lines()), list(got.iter_bytes(4)), list(got.iter_text(5))), (["a", "bö", "c"], [b"a\r\nb", "ö\nc".encode()], ["a\r\nbö", "\nc"]))
        self.case.assertEqual("".join(got.iter_content(3, decode_unicode=True)), body)


# The names that work, what is different, and the check.
WORKS = [
    ("get post put patch delete options head request", "The same. A HEAD follows redirects. There are no other methods.", Works.methods),
    ("stream", "As in httpx: `with client.stream(\"GET\", url) as response`. The first 512 KiB arrive together, unless `body_policy={\"auto\": {\"max_hold_back_bytes\": 0}}` is set.", Works.stream),
    ("params", "The same. A value that is None is left out.", Works.params),
    ("data json content", "The same, also of a file. A body has at most 1 MiB.", Works.bodies),
    ("headers", "The same. A value that is None leaves out a header of the client.", Works.headers),
    ("cookies", "The same. Those of a response are not kept for the next fetch; `cookie_mode=\"within_fetch\"` keeps them for its redirects.", Works.cookies),
    ("auth", "A pair of user name and password. Other schemes need the adapter.", Works.auth),
    ("timeout", "Seconds for the whole fetch, and not for each read. A pair is refused: use `timeout_policy`.", Works.timeout),
    (
        "Client.headers Client.params Client.cookies Client.auth Client.timeout Client.base_url",
        "The same, as arguments of `Client` and as attributes. Policies are arguments of it too.",
        Works.client_defaults,
    ),
    ("Client AsyncClient", "The same, with the address of fetchd first: `fetchd.Client(\"127.0.0.1:8080\")`.", Works.clients),
    ("close aclose", "The same. `aclose` is of `AsyncClient`.", Works.close),
    (
        "status_code reason_phrase reason http_version url Response.headers content read text elapsed links is_success is_error is_redirect",
        "The same. `url` is a str.",
        Works.simple,
    ),
    ("ok raise_for_status", "They are about the whole fetch: a body that is incomplete is not ok. `raise_for_status` raises a `FetchError`.", Works.raise_for_status),
    ("Response.json", "The same, in the charset of Content-Type.", Works.json),
    ("encoding", "The charset of Content-Type, or utf-8. It may be set.", Works.encoding),
    ("history", "`url`, `status_code` and the header Location of each redirect.", Works.history),
    ("iter_bytes iter_text iter_lines iter_content", "As in httpx: lines are text. Live streams: see `stream`. In `AsyncClient` they are asynchronous.", Works.iterators),
]


def names_of(row):
    return ", ".join(f"`{name}`" for name in row.split())


def refused(table):
    """Returns the rows of a table, with the names that have the same text in one row."""
    rows = {}
    for name, text in table.items():
        rows.setdefault(text, []).append(name)
    return [(" ".join(names), text) for text, names in rows.items()]


REFUSED = [
    ("Arguments", {name: text for name, text in _foreign.ARGUMENTS.items() if name not in ("url", "method", "body")}),
    ("Attributes of a client", {name: text for name, text in _foreign.CLIENT.items() if name not in _foreign.ARGUMENTS}),
    ("Attributes of a response", _foreign.RESPONSE),
    ("Attributes of the headers of a response", _foreign.HEADERS),
    ("Names of the module", _foreign.MODULE),
]


def section():
    """Returns the tables of README.md."""
    lines = ["| name | here |", "|---|---|"]
    lines += [f"| {names_of(names)} | {text} |" for names, text, _ in WORKS]
    lines += ["", "Names that are missing, because a value is a str or a dict:", "", "| name | here |", "|---|---|"]
    lines += [f"| {names_of(names)} | {text} |" for names, text in refused(_foreign.VALUES)]
    return "\n".join(lines) + "\n"


class NamesTest(Case):
    kind = fetchd.Client

    def setUp(self):
        self.client = self.kind(self.service.target)
        self.addCleanup(self.client.close)

    def redirect(self, status):
        return self.url("redirect", f"{status}/1/200", kind="r")

    def test_works(self):
        for names, _, check in WORKS:
            with self.subTest(names):
                check(Works(self))

    def test_refused_arguments(self):
        for name, text in _foreign.ARGUMENTS.items():
            if name in ("url", "method"):
                continue
            values = {not _foreign.SAME.get(name, False), 5}
            for call in (lambda **given: self.client.get(self.url("a", "200"), **given), lambda **given: self.kind(self.service.target, **given)):
                for value in values:
                    with self.subTest(name), self.assertRaises(TypeError) as raised:
                        call(**{name: value})
                    self.assertEqual(str(raised.exception), f"{name} is not an argument: {text}")
        self.assertEqual(self.seen("a"), [])

    def test_arguments_that_change_nothing(self):
        """Wrappers pass these values."""
        given = {**dict.fromkeys(_foreign.ARGUMENTS), **_foreign.SAME}
        del given["url"], given["method"]
        with self.kind(self.service.target, **given) as client:
            self.assertEqual(client.get(self.url("a", "200"), timeout=60, **given).status_code, 200)

    def test_arguments_of_a_fetch(self):
        for name in "content", "data", "json", "store", "key", "on_event":
            with self.assertRaisesRegex(TypeError, f"{name} is an argument of a fetch, not of a client"):
                self.kind(self.service.target, **{name: "x"})

    def test_refused_attributes(self):
        response = self.client.get(self.url("a", "200"), timeout=60)
        with self.client.stream("GET", self.url("a", "200"), timeout=60) as streamed:
            for name, text in _foreign.RESPONSE.items():
                objects = [got for got in (response, streamed) if not hasattr(type(getattr(got, "_got", got)), name)]
                self.assertTrue(objects, name)
                for got in objects:
                    with self.subTest(name), self.assertRaises(AttributeError) as raised:
                        getattr(got, name)
                    self.assertRegex(str(raised.exception), "has no '%s': " % name)
                    self.assertTrue(str(raised.exception).endswith(": " + text))
        for name, text in _foreign.HEADERS.items():
            with self.subTest(name), self.assertRaises(AttributeError) as raised:
                getattr(response.headers, name)
            self.assertEqual(str(raised.exception), f"Headers has no {name!r}: {text}")
        client = getattr(self.client, "_client", self.client)
        for path in _foreign.VALUES:
            owner, value, name = path.split(".")
            with self.subTest(path):
                self.assertFalse(hasattr(getattr({"Client": client, "Response": response}[owner], value), name))
        for name, text in _foreign.CLIENT.items():
            get = [] if hasattr(type(client), name) else [lambda: getattr(client, name)]  # aclose, and stream
            for use in (*get, lambda: setattr(client, name, None)):
                with self.subTest(name), self.assertRaises(AttributeError) as raised:
                    use()
                self.assertEqual(str(raised.exception), f"{type(client).__name__} has no {name!r}: {text}")


class AsyncNamesTest(NamesTest):
    kind = Blocking


class TableTest(unittest.TestCase):
    def test_module(self):
        for name, text in _foreign.MODULE.items():
            with self.subTest(name), self.assertRaises(AttributeError) as raised:
                getattr(fetchd, name)
            self.assertEqual(str(raised.exception), f"module 'fetchd' has no {name!r}: {text}")
        self.assertFalse(hasattr(fetchd, "other"))

    def test_readme(self):
        """README.md has these tables, as this file makes them: run it to print them."""
        _, _, text = README.read_text().partition(" Most names mean the same:\n\n")
        self.assertEqual(text.split("\n## ")[0].splitlines(), section().splitlines())

    def test_every_name_works(self):
        """The check of a row uses each of its names."""
        for names, _, check in WORKS:
            for name in names.split():
                self.assertIn(name.rpartition(".")[2], inspect.getsource(check))

    def test_no_name_is_missing(self):
        """The 60 most used names of requests and httpx are in the tables, and more."""
        known = {name.rpartition(".")[2] for names, *_ in WORKS for name in names.split()}
        known.update(*(table for _, table in REFUSED), (name.rpartition(".")[2] for name in _foreign.VALUES))
        for name in NAMES:
            self.assertIn(name, known)
        self.assertGreaterEqual(len(NAMES), 60)


# Those of the documentation, without what a program has if it makes a transport, a handler of cookies or a
# request itself.
NAMES = """
get post put patch delete head options request stream Session Client AsyncClient close aclose send build_request prepare_request mount adapters get_adapter
params data json content files headers cookies auth timeout allow_redirects follow_redirects verify cert proxies proxy hooks event_hooks
max_redirects base_url transport limits retries trust_env mounts http1 http2 extensions default_encoding
status_code reason reason_phrase http_version url text encoding apparent_encoding raise_for_status ok is_success is_error is_redirect
is_informational is_client_error is_server_error is_permanent_redirect has_redirect_location history next next_request elapsed links raw read
iter_bytes iter_content iter_text iter_lines iter_raw aread aiter_bytes aiter_text aiter_lines aiter_raw get_list multi_items get_dict set
host path
exceptions RequestException HTTPError ConnectionError Timeout ConnectTimeout ReadTimeout WriteTimeout PoolTimeout TooManyRedirects SSLError ProxyError
ChunkedEncodingError ContentDecodingError MissingSchema InvalidSchema InvalidURL URLRequired RetryError JSONDecodeError CookieConflictError
RequestError HTTPStatusError TransportError TimeoutException NetworkError ConnectError ReadError WriteError CloseError ProtocolError
LocalProtocolError RemoteProtocolError UnsupportedProtocol DecodingError CookieConflict StreamError StreamConsumed StreamClosed ResponseNotRead
RequestNotRead
codes Limits URL QueryParams Cookies Proxy BasicAuth DigestAuth HTTPBasicAuth HTTPDigestAuth HTTPProxyAuth AuthBase HTTPAdapter HTTPTransport
AsyncHTTPTransport RequestsCookieJar PreparedRequest auth utils
""".split()


if __name__ == "__main__":
    print(section())
