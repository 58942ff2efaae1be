"""What every client gets, and where its results go. Its lines are not counted."""

import hashlib
import json
import sys


def jobs():
    """Yields the method and the URL of each request."""
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in lines:
            method, url = line.split()
            yield method, url


def done(url, body):
    """Records a body that the client takes for right."""
    write({"url": url, "sha256": hashlib.sha256(body).hexdigest()})


def failed(url, error):
    """Records that the client could not fetch a URL."""
    write({"url": url, "error": f"{type(error).__name__}: {error}"[:200]})


def write(result):
    # One write for each line: threads call this at the same time.
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
