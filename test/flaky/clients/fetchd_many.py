# fetchd by its package for Python: client/python/README.md, "Fetch many URLs". FETCHD is the address of
# the service.
import os

import fetchd

from jobs import done, failed, jobs

requests = ({"method": method, "url": url} for method, url in jobs())
policies = {"retry_policy": {"max_attempts": 4}, "timeout_policy": {"attempt_timeout": 5}}
with fetchd.Client(os.environ["FETCHD"], **policies) as client:
    for result in client.fetch_many(requests, open=32):
        if result.ok:
            done(result.request["url"], result.response.content)
        else:
            failed(result.request["url"], result.error)
