# requests with urllib3's Retry, as the documentation of requests shows it under "Automatic Retries":
# requests.readthedocs.io/en/latest/user/advanced/. Retry repeats only methods that may be repeated, and
# obeys Retry-After by default: urllib3.readthedocs.io/en/stable/reference/urllib3.util.html
from concurrent.futures import ThreadPoolExecutor

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from jobs import done, failed, jobs

retry = Retry(total=3, backoff_factor=0.5, status_forcelist=[429, 500, 502, 503, 504])
session = requests.Session()
session.mount("http://", HTTPAdapter(max_retries=retry, pool_maxsize=32))
session.mount("https://", HTTPAdapter(max_retries=retry, pool_maxsize=32))


def fetch(job):
    method, url = job
    try:
        response = session.request(method, url, timeout=5)
        response.raise_for_status()
        done(url, response.content)
    except requests.RequestException as error:
        failed(url, error)


with ThreadPoolExecutor(32) as pool:
    list(pool.map(fetch, jobs()))
