// got with the handlers of got-ssrf, without retries.
import { gotSsrf } from "got-ssrf";

process.stdout.write(await gotSsrf(process.argv[2], { retry: { limit: 0 } }).text());
