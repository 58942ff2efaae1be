"""What used to hang, to leak a token, or to fail with an error that is not the caller's."""

import gc
import os
import signal
import unittest
from unittest import mock

import httpx
import requests

import fetchd
from fetchd.httpx_transport import FetchdTransport
from fetchd.requests_adapter import FetchdAdapter
from rig import Case


class AttackTest(Case):
    def setUp(self):
        self.client = fetchd.Client(self.service.target)
        self.addCleanup(self.client.close)

    def test_stream_that_cannot_be_opened(self):
        """It fails one fetch, and the next one opens another."""
        with mock.patch.object(self.client._driver.methods, "many", side_effect=RuntimeError("no new thread")):
            with self.assertRaisesRegex(RuntimeError, "new thread"):
                self.client.get(self.url("a", "200"), timeout=20)
        self.assertEqual(self.client.get(self.url("a", "200"), timeout=20).status_code, 200)

    def test_token(self):
        with self.assertRaises(ValueError) as raised:
            fetchd.Client(self.service.target, token="secret\n")
        self.assertNotIn("secret", str(raised.exception))

    def test_result_has_no_token_in_repr(self):
        (result,) = self.client.fetch_many([{"url": self.url("a", "200"), "headers": {"Authorization": "secret"}}])
        self.assertNotIn("secret", repr(result))

    def test_malformed_request_of_any_kind(self):
        results = list(self.client.fetch_many([{"url": self.url("a", "200"), "timeout": 10**400}, self.url("b", "200")]))
        self.assertEqual(sorted(r.ok for r in results), [False, True])

    def test_collected_with_the_lock(self):
        """The garbage collector runs in any thread, also in one that has the lock."""
        client = fetchd.Client(self.service.target)
        client.get(self.url("a", "200"))
        driver = client._driver
        with driver.lock, self.assertWarns(ResourceWarning):
            del client
            gc.collect()
            self.assertIsNone(driver.pool.closed)
        for thread in list(driver.threads):
            thread.join(20)
        self.assertEqual(driver.threads, set())

    def test_fork(self):
        """A client of the parent does not hang in the child."""
        self.client.get(self.url("a", "200"))
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                self.client.get(self.url("a", "200"))
            except RuntimeError:
                self.client.close()
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_httpx(self):
        with httpx.Client(transport=FetchdTransport(self.client)) as http:
            self.assertEqual(http.get(self.url("a", "200:header=X-A=h%C3%A9")).headers["x-a"], "hé")
            self.assertEqual(http.get(self.url("b", "200").replace("://", "://u:p@")).status_code, 200)
        self.assertIn("Authorization", self.seen("b")[0]["header"])

    def test_requests(self):
        with requests.Session() as session:
            session.trust_env = False
            adapter = FetchdAdapter(self.client)
            session.mount("http://", adapter)
            response = session.get(self.url("a", "200").replace("://", "://u:p@"))
        self.assertEqual(response.status_code, 200)
        self.assertIs(response.connection, adapter)
        self.assertIn("Authorization", self.seen("a")[0]["header"])


if __name__ == "__main__":
    unittest.main()
