// node-fetch with the agent of request-filtering-agent, as its README says.
import fetch from "node-fetch";
import { useAgent } from "request-filtering-agent";

const url = process.argv[2];
const response = await fetch(url, { agent: useAgent(url) });
process.stdout.write(await response.text());
