"""The package as a program meets it: its import, its end, its types."""

import functools
import pathlib
import pydoc
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import fetchd
from rig import Case


def run(program, *arguments, **options):
    """Runs a Python program, and returns what it printed."""
    command = [sys.executable, "-W", "default", "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    return done.returncode, done.stdout, done.stderr


class ImportTest(unittest.TestCase):
    def test_import(self):
        """The import is small next to that of grpc, and imports neither requests nor httpx."""
        code, out, err = run("""
            import sys, time
            import grpc
            before = time.process_time()
            import fetchd
            print(time.process_time() - before)
            print(*sorted({"requests", "httpx", "urllib3", "importlib.metadata", "asyncio.subprocess"} & set(sys.modules)))
        """)
        self.assertEqual((code, err), (0, ""))
        took, modules = out.splitlines()[:2]
        print(f"import fetchd takes {float(took):.3f} s of CPU more than import grpc", file=sys.stderr)
        self.assertNotIn("requests", modules)
        self.assertNotIn("httpx", modules)

    def test_own_stubs(self):
        """Stubs that a program has generated do not clash with the package."""
        code, out, err = run("""
            from google.protobuf import descriptor_pb2, descriptor_pool
            import fetchd
            data = __import__("pathlib").Path(fetchd.__file__).with_name("descriptor.binpb").read_bytes()
            for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
                if file.package == "fetchd.v1":
                    file.message_type[0].field[0].json_name = "other"
                    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
            print("loaded")
        """)
        self.assertEqual((code, out), (0, "loaded\n"), err)


class EndTest(Case):
    def test_version(self):
        self.assertRegex(fetchd.__version__, r"^\d+\.\d+")

    def test_end_without_close(self):
        """A program ends even if it does not close its client."""
        code, out, err = run("import sys, fetchd; client = fetchd.Client(sys.argv[1]); print(client.get(sys.argv[2]).status_code)", self.service.target, self.url("a", "200"))
        self.assertEqual((code, out, err), (0, "200\n", ""))

    def test_warnings(self):
        """A client that is collected and was not closed warns, and closes."""
        code, out, err = run(
            """
            import asyncio, gc, sys, threading, fetchd
            client = fetchd.Client(sys.argv[1])
            client.get(sys.argv[2])
            del client
            gc.collect()
            for thread in threading.enumerate():
                if "fetchd" in thread.name:
                    thread.join(20)
            print([t.name for t in threading.enumerate() if "fetchd" in t.name])

            async def main():
                await fetchd.AsyncClient(sys.argv[1]).get(sys.argv[2])
                gc.collect()
                for _ in range(400):
                    if len(asyncio.all_tasks()) == 1:
                        break
                    await asyncio.sleep(0.05)
                print(len(asyncio.all_tasks()))

            asyncio.run(main())
        """,
            self.service.target,
            self.url("a", "200"),
        )
        self.assertEqual((code, out), (0, "[]\n1\n"), err)
        self.assertEqual(err.count("ResourceWarning: unclosed"), 2, err)
        self.assertIn("unclosed Client('127.0.0.1:", err)

    def test_interrupt(self):
        """Ctrl-C ends a fetch that waits, and cancels it."""
        program = """
            import sys, fetchd
            with fetchd.Client(sys.argv[1]) as client:
                try:
                    {call}
                except KeyboardInterrupt:
                    print("interrupted")
        """
        for name, call in [
            ("get", "client.get(sys.argv[2])"),
            ("stream", "client.stream('GET', sys.argv[2])"),
            ("many", "list(client.fetch_many([sys.argv[2]]))"),
        ]:
            with self.subTest(name):
                command = [sys.executable, "-c", textwrap.dedent(program.format(call=call)), self.service.target, self.url(name, "silent")]
                # A shell's background job ignores SIGINT, and so do the programs that it starts.
                default = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
                process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=default)
                while not self.seen(name):
                    time.sleep(0.05)
                process.send_signal(signal.SIGINT)
                out, _ = process.communicate(timeout=60)
                self.assertEqual((out, process.returncode), ("interrupted\n", 0))
                while not self.seen(name)[0]["end"]:
                    time.sleep(0.05)
                self.assertNotEqual(self.seen(name)[0]["end"], "answered")


class MissingTest(unittest.TestCase):
    def test_packages(self):
        """Without grpcio, whose module has another name, the error says what to install."""
        code = "import sys; sys.path.insert(0, sys.argv[1]); import fetchd"
        done = subprocess.run([sys.executable, "-I", "-S", "-c", code, pathlib.Path(fetchd.__file__).parents[1]], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\nImportError: No module named '(google|grpc)': fetchd needs grpcio and protobuf; pip install grpcio protobuf, or ")


class HelpTest(unittest.TestCase):
    def test_help(self):
        """The help of a method answers without another page, and shows types as types."""
        for kind in fetchd.Client, fetchd.AsyncClient:
            for name in "get post put patch delete head options request stream events fetch_many explain __init__".split():
                text = pydoc.render_doc(getattr(kind, name), renderer=pydoc.plaintext)
                with self.subTest(f"{kind.__name__}.{name}"):
                    signature = text.splitlines()[2]
                    for wrong in "Unpack", "'Re", "ForwardRef", "fetchd._", "None.":
                        self.assertNotIn(wrong, signature)
                    if name == "events":
                        self.assertIn("attempt_finished (attempt, response, ", text)
                    for wrong in "; see", ": see", "{arguments}", "{outcome}", "{events}":
                        self.assertNotIn(wrong, text)
                    if "Options" in signature:
                        for argument in "headers: dict", "timeout: seconds | timedelta", "max_attempts: int", "scope: 'any' | 'same_host' | 'same_origin'", "on_event: ":
                            self.assertIn(argument, text)
            self.assertIn("get(self, url: str, **options: fetchd.Options) -> fetchd.Response", pydoc.render_doc(kind.get, renderer=pydoc.plaintext))
            self.assertIn("error_classes: list of 'dns_not_found' | ", pydoc.render_doc(kind.explain, renderer=pydoc.plaintext))

    def test_help_of_policies(self):
        """The help of a policy says of each field what it is and what it does."""
        policies = [kind for kind in map(fetchd.__dict__.get, fetchd.__all__) if kind is not fetchd.Request and hasattr(kind, "__total__")]
        self.assertIn(fetchd.RetryPolicy, policies)
        for kind in policies:
            names = kind.__annotations__ if kind not in (fetchd.Defaults, fetchd.Options) else ()
            for name in names:
                with self.subTest(f"{kind.__name__}.{name}"):
                    self.assertRegex(kind.__doc__, rf"\n    {name}: [^.]+\. ")
        self.assertIn(r'such as "\"abc\"" or "W/\"abc\""', fetchd.Precondition.__doc__)
        self.assertIn("max_attempts: int. Maximum number of attempts", pydoc.render_doc(fetchd.RetryPolicy, renderer=pydoc.plaintext))
        self.assertIn("timeout: seconds | timedelta", pydoc.render_doc(fetchd.Options, renderer=pydoc.plaintext))
        self.assertIn("violations: list of Violation", pydoc.render_doc(fetchd.ServiceError, renderer=pydoc.plaintext))


class TypesTest(unittest.TestCase):
    def mypy(self, text, *flags):
        """Checks a program with mypy --strict, and returns what it reports."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            program.write_text(text)
            config = pathlib.Path(folder, "mypy.ini")
            config.write_text("[mypy]\nenable_incomplete_feature = Unpack\n[mypy-grpc.*,google.*]\nignore_missing_imports = True\n")
            command = ["/usr/bin/mypy", "--strict", f"--config-file={config}", f"--python-executable={sys.executable}", "--cache-dir", str(pathlib.Path(folder, "cache"))]
            done = subprocess.run([*command, *flags, str(program)], capture_output=True, text=True, timeout=300)
        return done.stdout + done.stderr

    def test_example(self):
        said = self.mypy(pathlib.Path(__file__).with_name("typed_example.py").read_text())
        self.assertIn("Success", said)

    def test_mistakes(self):
        said = self.mypy(
            textwrap.dedent("""
                import fetchd

                client = fetchd.Client("127.0.0.1:8080")
                client.get("http://o.example/", retry_polcy={})
                client.get("http://o.example/", retry_policy={"max_attempts": "5"})
                client.get("http://o.example/", redirect_policy={"scope": "SAME_ORIGIN"})
                client.get("http://o.example/").content.encode()
                fetchd.RetryPolicy(max_tries=3)
                client.verify
                client.get("http://o.example/").apparent_encoding
                fetchd.get("http://o.example/")
                fetchd.Client("127.0.0.1:8080", verify=False)
            """)
        )
        for line in range(5, 14):
            self.assertIn(f"program.py:{line}: error:", said)


if __name__ == "__main__":
    unittest.main()
