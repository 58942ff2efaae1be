// axios with the agents of ssrf-req-filter, as its README says.
import axios from "axios";
import ssrfFilter from "ssrf-req-filter";

const url = process.argv[2];
const response = await axios.get(url, { httpAgent: ssrfFilter(url), httpsAgent: ssrfFilter(url), responseType: "text" });
process.stdout.write(response.data);
